"""A stand-in for llama-server: it says what a file tells it to, or goes wrong as it is asked.

The environment has FAKE_ANSWERS, a JSON file {"PROMPT'S IDS": [[tokens], drafted, accepted] a step,
the prompt's pass first}, and FAKE_FAULT, one of the words below.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

FAULT = os.environ.get("FAKE_FAULT", "")


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        loading = FAULT == "never ready"
        self.send_response(503 if loading else 404 if "get_model" in self.path else 200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if FAULT == "dies in a request":
            print("error: out of everything", file=sys.stderr, flush=True)
            os._exit(3)
        if FAULT == "answers 500":
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b'{"error": {"message": "all is lost"}}')
            return
        self.send_response(200)
        self.end_headers()
        if FAULT == "hangs":
            time.sleep(600)
        for chunk in chunks(asked):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def chunks(asked):
    """What llama-server streams: a chunk a token, cumulative timings, the last one without any."""
    with open(os.environ["FAKE_ANSWERS"]) as opened:
        known = json.load(opened)
    steps = known[",".join(map(str, asked["prompt"]))]
    steps = steps if asked["n_predict"] > 16 else steps[:2]  # the first prompt is asked to warm up
    drafted = accepted = emitted = 0
    for number, (tokens, d, a) in enumerate(steps):
        drafted, accepted = drafted + d, accepted + a
        ms = 5.0 + sum(2 + 1.0 * step[1] for step in steps[1 : number + 1])
        timings = {"draft_n": drafted, "draft_n_accepted": accepted, "predicted_ms": ms}
        if FAULT == "says nothing":
            timings = None
        for token in tokens:
            emitted += 1
            whole = timings and {**timings, "predicted_n": emitted, "prompt_ms": 7.0}
            yield {"tokens": [token], "stop": False, "timings": whole}
    if FAULT != "breaks off":
        ends = "eos" if asked["n_predict"] > sum(len(step[0]) for step in steps) else "limit"
        last = {**timings, "predicted_n": emitted, "prompt_ms": 7.0} if timings else None
        yield {"tokens": [], "stop": True, "stop_type": ends, "timings": last}


if __name__ == "__main__":
    words = sys.argv[1:]
    if FAULT == "cannot load":
        print("E error loading model: missing tensor", file=sys.stderr)
        sys.exit(1)
    if FAULT == "has a child":  # which is to go with it
        import subprocess

        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(os.environ["FAKE_CHILD"], "w") as opened:
            opened.write(str(left.pid))
    HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
