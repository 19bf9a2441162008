"""Run in gdb: writes the names of the functions that a program executes.

Each function begins with a breakpoint, which goes when it is reached. In the environment are NAMES, a file with the offset
and the name of each function; EXECUTED, the file to write, in the order of NAMES; and TRACED_SECONDS, after which the program
is ended.
"""

import os
import subprocess

import gdb

BREAKPOINT = b"\xcc"

for setting in ["pagination off", "confirm off", "startup-with-shell off"]:
    gdb.execute(f"set {setting}")
# The program is not given the signal of a breakpoint.
gdb.execute("handle SIGTRAP stop nopass", to_string=True)
gdb.execute("starti", to_string=True)
program = gdb.selected_inferior()
path = os.path.realpath(f"/proc/{program.pid}/exe")
with open(f"/proc/{program.pid}/maps", encoding="utf-8") as maps:
    start = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(path))
functions = {}
with open(os.environ["NAMES"], encoding="utf-8") as names:
    for line in names:
        offset, name = line.split()
        functions.setdefault(start + int(offset, 16), name)
before = {at: bytes(program.read_memory(at, 1)) for at in functions}
for at in functions:
    program.write_memory(at, BREAKPOINT)

subprocess.Popen(["sh", "-c", f"sleep {os.environ['TRACED_SECONDS']}; kill -INT {program.pid}"])
signals = []
gdb.events.stop.connect(lambda event: signals.append(getattr(event, "stop_signal", None)))
executed = set()
while True:
    gdb.execute("continue", to_string=True)
    signal = signals.pop() if signals else "SIGINT"
    if signal == "SIGINT":
        break
    if signal not in (None, "SIGTRAP"):
        continue
    at = int(gdb.parse_and_eval("(unsigned long)$pc")) - len(BREAKPOINT)
    # Another thread may have reached it, too.
    executed.add(at)
    program.write_memory(at, before[at])
    gdb.execute(f"set $pc = {at}")
with open(os.environ["EXECUTED"], "w", encoding="utf-8") as out:
    out.writelines(f"{name}\n" for at, name in functions.items() if at in executed)
gdb.execute("kill")
