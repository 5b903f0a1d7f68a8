"""Start a program in the server of `warm.py`, for shells: `python -I -S warm_client.py ADDRESS WORDS...`.

It imports nothing slow, because it runs once for each command that a page shows.
"""

import _socket
import marshal
import os
import sys
from array import array

connection = _socket.socket(_socket.AF_UNIX)
connection.connect(sys.argv[1])
message = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ)))  # noqa: PTH109  importing pathlib is slow
streams = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", [0, 1, 2]))]
connection.sendmsg([b"%d\n" % len(message)], streams)
message = memoryview(message)
while message:
    message = message[connection.send(message) :]
code = int(connection.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)  # end like the program, so that the shell reports 137 for a killed one
sys.exit(code)
