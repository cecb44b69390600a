"""What a step did from any position, and what it did is for a cost to price: `work.Work`.

Each kind of drafting is one module, a family: `chain`, `tree`, `concurrent`, and `routed` where
several drafters take turns. `family.Family` is what a family answers; `family.family_of` finds that
of a policy. Steps do not know costs: `simkit.simulator.step_costs` prices their work.
"""
