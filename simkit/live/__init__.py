"""Real speculative decoding: what a replay predicts, done with the models."""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded

from simkit.live.decoder import Decoded, Decoder, DecoderSettings, Step  # noqa: E402

__all__ = ["Decoded", "Decoder", "DecoderSettings", "Step"]
