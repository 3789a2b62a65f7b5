"""One query through all heads of an attention layer, in a trained model.

    python examples/one_query.py RUN TEXT QUERY OUT.png [CALL] [LANGUAGE]

draws the input of the layer, its projection, in each head the keys by weight and the weighted sum,
the concatenation and the product with W_O. CALL is the name of an attention call, by default the
last self-attention of the encoder; LANGUAGE is en or ko.
"""

import sys

import regard
from regard.visual.figure import workflow


def main(run: str, text: str, query: str, out: str, call: str = "", language: str = "en") -> None:
    """Write the figure."""
    trace = regard.load(run).trace(text, beam=5)
    names = [name for name in trace.names if name.startswith("encoder.")]
    workflow(trace.select(call or names[-1]), query, out, language=language)
    print(f"{text} → {trace.about['translation']}")
    print(out)


if __name__ == "__main__":
    if not 5 <= len(sys.argv) <= 7:
        sys.exit("usage: python examples/one_query.py RUN TEXT QUERY OUT.png [CALL] [LANGUAGE]")
    main(*sys.argv[1:])
