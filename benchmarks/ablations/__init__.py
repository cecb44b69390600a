"""The ablations of the PACER and the acceptance-head papers, replayed on the reference trace."""
