"""Answer spaces small enough to enumerate: exact gradient flow and sampled training in seconds.

    python -m toy            the table and the figures, under two minutes
    python -m toy --full     the long version, into results/toy/

Every response of the option spaces has length 1, so its confidence is π(option). The sequence
space has lengths, and shows what the two readings of confidence do to them.
"""
