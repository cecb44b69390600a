"""Real speculative decoding: what a replay predicts, done with the models."""

from simkit.live.decoder import Decoded, Decoder, Settings, Step

__all__ = ["Decoded", "Decoder", "Settings", "Step"]
