"""A server process for the tests, on free ports. The readiness line that it
prints contains its addresses."""

import json
import os
import subprocess


class Server:
    """A running `stele serve`. STELE_BIN is the path of the binary."""

    def __init__(self, *flags):
        binary = os.environ["STELE_BIN"]
        command = [binary, "serve", "--grpc-port", "0", "--http-port", "0", "--metastore-port", "off", *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"no readiness line: {' '.join(command)}")
        self.ready = json.loads(line)

    @property
    def address(self):
        return self.ready["grpc"]

    @property
    def http(self):
        return f"http://{self.ready['http']}"

    def terminate(self):
        """Sends SIGTERM and returns the exit code."""
        self.process.terminate()
        return self._wait()

    def kill(self):
        self.process.kill()
        return self._wait()

    def _wait(self):
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code
