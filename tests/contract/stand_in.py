"""Stands in for `claude --print --input-format stream-json`: the same flags, the same socket, the same lines.

Real where it matters to us: it asks the Messages API over ANTHROPIC_UNIX_SOCKET, runs `Bash` in its working folder, and
ends a turn with `StructuredOutput`. What is said meanwhile comes behind the results of the tools, or starts a turn of
its own; an interruption ends the turn and the command that runs. The end of its input is its own end.
"""

import argparse
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any


class Service(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["ANTHROPIC_UNIX_SOCKET"])


def ask(body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The status, and the blocks of an answer."""
    service = Service("model")
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
    service.request("POST", "/v1/messages?beta=true", json.dumps(body), {**headers, "anthropic-version": "2023-06-01"})
    answer = service.getresponse()
    text = answer.read().decode()
    return answer.status, list(blocks(text)) if answer.status == 200 else [json.loads(text)["error"]]


def blocks(stream: str) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for line in stream.splitlines():
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        if event.get("type") == "content_block_start":
            found[event["index"]] = {**event["content_block"], "raw": ""}
        elif event.get("type") == "content_block_delta":
            kind, value = next((key, value) for key, value in event["delta"].items() if key != "type")
            if kind == "signature":
                found[event["index"]]["signature"] = value
            else:
                found[event["index"]]["raw"] += value
    return list(found.values())


def said_again(block: dict[str, Any]) -> dict[str, Any]:
    """What is no tool call goes back as it came."""
    text = {name: block["raw"] for name in ("text", "thinking") if name in block}
    return {name: value for name, value in block.items() if name != "raw"} | text


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class Input:
    """What is said to the session: read when a turn begins, while a command runs, and after it."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.interrupted = self.ended = False
        self.rest = b""

    def look(self, timeout: float | None) -> None:
        """Read what has come, waiting for it for at most so long."""
        while not self.ended and select.select([0], [], [], timeout)[0]:
            chunk = os.read(0, 65_536)
            self.ended = not chunk
            *lines, self.rest = (self.rest + chunk).split(b"\n")
            for message in map(json.loads, lines):
                if message["type"] == "user":
                    self.said += message["message"]["content"]
                else:
                    self.interrupted = True
                    say(type="control_response", response={"subtype": "success", "request_id": message["request_id"]})
            timeout = 0

    def news(self, timeout: float | None = 0) -> list[dict[str, Any]]:
        """The blocks that were said, waiting for the first of them for at most so long."""
        if not self.said:
            self.look(timeout)
        found, self.said = self.said, []
        return found

    def run(self, line: str) -> str:
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            shell = ["sh", "-c", line]
            command = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True)
            while command.poll() is None:
                self.look(0.02)
                if self.interrupted:
                    os.killpg(command.pid, signal.SIGKILL)
                elif self.ended:
                    time.sleep(0.02)
            self.look(0)
            output.seek(0)
            return output.read()


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--print", "--verbose", "--bare", "--strict-mcp-config", "--no-session-persistence"):
        parser.add_argument(flag, action="store_true", required=True)
    parser.add_argument("--dangerously-skip-permissions", action="store_true")
    for flag in ("--input-format", "--output-format", "--model", "--setting-sources", "--max-turns", "--json-schema"):
        parser.add_argument(flag, required=True)
    for flag in ("--max-budget-usd", "--tools", "--append-system-prompt", "--permission-mode"):
        parser.add_argument(flag)
    flags = parser.parse_args()
    tools = [
        {"name": "Bash", "input_schema": {"type": "object"}},
        {"name": "StructuredOutput", "input_schema": json.loads(flags.json_schema)},
    ]
    heard, messages = Input(), list[dict[str, Any]]()
    last = 0
    while said := heard.news(None):
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += said
        else:
            messages.append({"role": "user", "content": said})
        say(type="system", subtype="init", model=flags.model, tools=[tool["name"] for tool in tools])
        heard.interrupted = False
        body = {"model": flags.model, "max_tokens": 9000, "messages": messages, "tools": tools, "stream": True}
        result = turn(heard, body)
        say(**result, is_error=result["subtype"] != "success", type="result")
        last = int(result["subtype"] != "success")
    sys.exit(last)


def turn(heard: Input, body: dict[str, Any]) -> dict[str, Any]:
    """Everything up to a result."""
    messages: list[dict[str, Any]] = body["messages"]
    while True:
        status, said = ask(body)
        if status != 200:
            return {"subtype": "error_during_execution", "result": f"API Error: {status} {said[0]['message']}"}
        content, results = [], []
        ending: dict[str, Any] | None = None
        for block in said:
            if block["type"] != "tool_use":
                content.append(said_again(block))
                continue
            try:
                given = json.loads(block["raw"] or "{}")
            except ValueError:
                return {"subtype": "error_max_structured_output_retries"}
            content.append({key: block[key] for key in ("type", "id", "name")} | {"input": given})
            if block["name"] == "StructuredOutput":
                ending = {"subtype": "success", "result": block["raw"], "structured_output": given}
                output = "provided"
            else:
                output = heard.run(given["command"])
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": output or "(nothing)"})
        messages.append({"role": "assistant", "content": content})
        say(type="assistant", message=messages[-1])
        if not results:
            return {"subtype": "success", "result": content[-1]["text"]}
        messages.append({"role": "user", "content": results})
        heard.look(0)
        if heard.interrupted:
            return {"subtype": "error_during_execution"}
        if ending:
            return ending
        results += heard.news()


main()
