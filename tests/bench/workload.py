"""What both sides of the bench train on, as numbers: shapes of batches, lengths of samples. Standard library only, so that the data
writer, the peer and the tests read the same list."""

VOCAB = 8192
SEQUENCE, SEQUENCES = 512, 4  # lm: one step
PICTURE_TOKENS, CAPTION_TOKENS, PICTURES = 196, 64, 8  # vlm: one step
PICTURE_SIDE = 224
PICTURE_ID = 3  # the peer's placeholder token; ordinary ones are drawn from 4 on

# The mixture: (has a picture, tokens of text) of 64 samples, 8 a step. Half of them with a picture, lengths log-uniform from 16 to 512.
# Drawn once and written down, so that the order is a fact and not a property of a random generator.
MIXTURE_BATCH = 8
MIXTURE = [
    (1, 145), (1, 41), (0, 18), (0, 17), (1, 268), (0, 378), (0, 131), (0, 201),
    (0, 105), (1, 409), (1, 270), (1, 16), (1, 312), (1, 18), (0, 201), (0, 29),
    (0, 319), (1, 104), (0, 45), (1, 69), (1, 18), (0, 25), (0, 163), (1, 151),
    (1, 135), (1, 60), (0, 507), (1, 479), (0, 172), (0, 152), (1, 174), (0, 62),
    (1, 26), (0, 195), (1, 99), (1, 47), (1, 86), (0, 349), (0, 407), (0, 55),
    (0, 116), (0, 49), (0, 125), (1, 52), (1, 62), (1, 350), (0, 35), (0, 139),
    (0, 21), (0, 287), (1, 245), (0, 37), (0, 334), (1, 20), (1, 51), (0, 27),
    (1, 76), (1, 253), (1, 36), (1, 19), (0, 65), (1, 32), (0, 22), (1, 120),
]
MIXTURE_WARM = (6, 7)  # batches that both sides train on first, unmeasured


def length(sample):
    picture, text = sample
    return picture * PICTURE_TOKENS + text


def mixture_batches(samples=None):
    samples = MIXTURE if samples is None else samples
    return [samples[i:i + MIXTURE_BATCH] for i in range(0, len(samples), MIXTURE_BATCH)]


def useful_tokens(case):
    """Tokens of each batch that the case measures, in order."""
    if case == "lm":
        return [SEQUENCE * SEQUENCES]
    if case == "vlm":
        return [(PICTURE_TOKENS + CAPTION_TOKENS) * PICTURES]
    return [sum(map(length, batch)) for batch in mixture_batches()]
