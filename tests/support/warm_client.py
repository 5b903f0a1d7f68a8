"""Start a program in the server of `warm.py`, for shells: `python -I -S warm_client.py ADDRESS WORDS...`.

It loads nothing that needs time, since there is one for each command that a page shows.
"""

import _socket
import marshal
import os
import sys
from array import array

connection = _socket.socket(_socket.AF_UNIX)
connection.connect(sys.argv[1])
message = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ)))  # noqa: PTH109  pathlib takes its time
streams = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", [0, 1, 2]))]
connection.sendmsg([b"%d\n" % len(message)], streams)
message = memoryview(message)
while message:
    message = message[connection.send(message) :]
code = int(connection.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)  # as the program ended, so that the shell says 137 of one that was killed
sys.exit(code)
