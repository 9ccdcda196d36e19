"""A server process: started on free ports, asked for its addresses by the
line that says it is ready, ended with the tests."""

import json
import os
import subprocess


class Server:
    """`stele serve`, ready. The binary is the one that STELE_BIN names."""

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
        """Ends it as an operator does. Returns the exit code."""
        self.process.terminate()
        return self._ended()

    def kill(self):
        self.process.kill()
        return self._ended()

    def _ended(self):
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code
