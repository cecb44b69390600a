"""What the reference pair is, without a library that models need: where it lies, and its tokens."""

from pathlib import Path

MODELS = Path(__file__).parents[2] / "reference" / "models"
VOCAB_SIZE = 4096
CONTEXT = 1024
EOS = "<|endoftext|>"
PAD = "<|pad|>"
EOS_ID, PAD_ID = 0, 1
