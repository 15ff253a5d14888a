"""A browser without a window that a test steers: the DevTools protocol over two pipes, which needs no package and no port."""
import fcntl
import json
import os
import select
import subprocess
import time

DEADLINE_S = 400        # only ends hangs: a page that is there in two seconds needs a minute on a machine with much else to do


class Browser:
    """command: the browser and its options. messages: what pages and their workers wrote to their consoles, as pairs of a level
    and a text; exceptions are errors."""

    def __init__(self, command):
        answers, theirs = os.pipe()
        mine, orders = os.pipe()

        def give_pipes():       # the browser reads orders from descriptor 3 and writes answers to 4; these may be in use here
            for fd, number in [(fcntl.fcntl(mine, fcntl.F_DUPFD, 10), 3), (fcntl.fcntl(theirs, fcntl.F_DUPFD, 10), 4)]:
                os.dup2(fd, number)

        self.process = subprocess.Popen([*command, "--remote-debugging-pipe", "about:blank"], preexec_fn=give_pipes, pass_fds=(3, 4))
        os.close(mine)
        os.close(theirs)
        self.answers, self.orders, self.buffer, self.calls, self.messages = answers, orders, b"", 0, []

    def close(self):
        self.call("Browser.close")
        self.process.wait(DEADLINE_S)

    def call(self, method, session=None, **params):
        self.calls += 1
        order = {"id": self.calls, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.read(deadline, method)
            if answer.get("id") == self.calls:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.note(answer.get("method"), answer.get("params"))

    def read(self, deadline, method):
        while b"\0" not in self.buffer:
            assert select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0], f"no answer to {method}"
            some = os.read(self.answers, 1 << 20)
            assert some, "the browser ended"
            self.buffer += some
        answer, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(answer)

    def note(self, method, event):
        if method == "Runtime.consoleAPICalled":
            self.messages.append((event["type"], " ".join(str(a.get("value", a.get("description"))) for a in event["args"])))
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.messages.append(("error", details.get("exception", {}).get("description", details["text"])))
        elif method == "Log.entryAdded":
            entry = event["entry"]
            self.messages.append((entry["level"], f"{entry['text']} {entry['url']}" if entry["source"] == "network" else entry["text"]))


class Page:
    """A page at the address."""

    def __init__(self, browser, address, blocked=()):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.setBlockedURLs", urls=list(blocked))
        self.call("Page.navigate", url=address)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def value(self, script):
        """Of a script; where that is a promise, of what it becomes."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")
