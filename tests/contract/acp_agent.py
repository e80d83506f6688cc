"""Stands in for any agent of the Agent Client Protocol: it does what its one argument says, step by step.

It has no library between itself and the protocol, so that it can break it. Where the scenario names a file, every
message of both sides is written there.
"""

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Agent:
    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        self.asked = 0
        self.prompts: list[str] = []
        self.ours = "s-1"
        self.cancelled = False

    def note(self, to: str, message: Json) -> None:
        if name := self.scenario.get("heard"):
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"to": to, "message": message}) + "\n")

    def send(self, **message: Any) -> None:
        self.note("client", {"jsonrpc": "2.0", **message})
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def read(self) -> Json:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        message: Json = json.loads(line)
        self.note("agent", message)
        return message

    def update(self, **update: Any) -> None:
        self.send(method="session/update", params={"sessionId": self.ours, "update": update})

    def say(self, text: str) -> None:
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def ask(self, method: str, *, session: str | None = None, **params: Any) -> Json:
        """What the client answers: its result, or its error."""
        self.asked += 1
        number = self.asked
        self.send(id=number, method=method, params={"sessionId": session or self.ours, **params})
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message
            self.cancelled = self.cancelled or message.get("method") == "session/cancel"

    def shell(self, command: str) -> str:
        terminal = self.ask("terminal/create", command=command)["result"]["terminalId"]
        self.ask("terminal/wait_for_exit", terminalId=terminal)
        output: str = self.ask("terminal/output", terminalId=terminal)["result"]["output"]
        self.ask("terminal/release", terminalId=terminal)
        return output

    def call_model(self) -> None:
        """One call to the Messages API at the address in the environment."""
        host = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://")
        service = http.client.HTTPConnection(host)
        body = {
            "model": os.environ["ANTHROPIC_MODEL"],
            "max_tokens": 100,
            "messages": [{"role": "user", "content": self.prompts[-1]}],
            "stream": True,
        }
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
        service.request("POST", "/v1/messages", json.dumps(body), {**headers, "anthropic-version": "2023-06-01"})
        answer = service.getresponse()
        self.say(f"[{answer.status}] {len(answer.read())} bytes")

    def step(self, step: Json) -> None:
        match step:
            case {"shell": command}:
                self.say(self.shell(command))
            case {"ask": method, **params}:
                self.say(json.dumps(self.ask(method, **params)))
            case {"say": text}:
                self.say(text)
            case {"update": update}:
                self.update(**update)
            case {"model": _}:
                self.call_model()
            case {"report": text}:
                self.ask("fs/write_text_file", path=os.environ["FLEET_REPORT"], content=text)
            case _:
                self.misbehave(step)

    def misbehave(self, step: Json) -> None:
        match step:
            case {"send": message}:
                self.send(**message)
            case {"raw": text, **rest}:
                sys.stdout.write(text * int(rest.get("times", 1)))
                sys.stdout.flush()
            case {"error": message}:
                raise RuntimeError(message)
            case {"exit": code}:
                sys.exit(code)
            case {"sleep": seconds}:
                time.sleep(seconds)
            case {"until_cancelled": _}:
                while not self.cancelled:
                    self.cancelled = self.read().get("method") == "session/cancel"
            case _:
                raise AssertionError(step)

    def turn(self, prompt: list[Json]) -> Json:
        self.prompts.append("\n\n".join(block["text"] for block in prompt))
        self.cancelled = False
        turns = self.scenario["turns"]
        for step in turns[min(len(self.prompts), len(turns)) - 1]:
            self.step(step)
        ending: Json = {"stopReason": "cancelled" if self.cancelled else self.scenario.get("stop", "end_turn")}
        return {**ending, **self.scenario.get("ending", {})}

    def serve(self) -> None:
        while True:
            message = self.read()
            number, method = message.get("id"), message.get("method")
            given = self.scenario.get("answers", {}).get(method)
            if given == "never":
                continue
            if given is not None:
                self.send(id=number, **given)
            elif method == "initialize":
                self.send(id=number, result={"protocolVersion": 1, "agentInfo": {"name": "stand-in", "version": "1"}})
            elif method == "session/new":
                self.send(id=number, result={"sessionId": self.ours})
            elif method == "session/prompt":
                try:
                    self.send(id=number, result=self.turn(message["params"]["prompt"]))
                except RuntimeError as error:
                    self.send(id=number, error={"code": -32603, "message": str(error)})


Agent(json.loads(sys.argv[1])).serve()
