"""A server and a client on this machine: the picture stays with the client (docs/deploy.md).

python examples/deployed_client.py bundle photo.jpg        # the folder that `attncem export RUN --out bundle` writes

On a device only the lines below `ask` are needed, with attncem-edge and without torch.
"""

import re
import subprocess
import sys
from contextlib import contextmanager

from attncem_edge import Budget, Client


@contextmanager
def serving(bundle):
    """Serve the bundle at a free port of loopback; give its address."""
    command = [sys.executable, "-m", "attncem", "serve", bundle, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        place = re.match(r"(http://\S+?)/v2/models/", server.stdout.readline())
        if place is None:
            sys.exit("the server did not start; the lines above say why")
        yield place[1]
    finally:
        server.terminate()
        server.communicate()


def ask(bundle, picture, url):
    """Ask about one picture at most four times in all, and at most 1,000 times about all pictures."""
    with Client(bundle, url=url, budget=Budget(per_image=4, total=1000)) as client:
        answer = client.predict(picture)
    where = "on the device" if answer.on_device else f"by the server, from {answer.bytes_sent} bytes"
    print(f"{picture}: {answer.label} ({answer.probabilities[answer.label]:.0%}), answered {where}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with serving(sys.argv[1]) as url:
        ask(sys.argv[1], sys.argv[2], url)
