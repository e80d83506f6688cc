"""Stands in for `claude --print --output-format stream-json`: the same flags, the same socket, the same lines.

Real where it matters to us: it asks the Messages API over ANTHROPIC_UNIX_SOCKET, runs `Bash` in its working folder, and
ends with `StructuredOutput`.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
from typing import Any, NoReturn


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


def end(subtype: str, **more: Any) -> NoReturn:
    say(type="result", subtype=subtype, is_error=subtype != "success", **more)
    sys.exit(subtype != "success")


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--print", "--verbose", "--bare", "--strict-mcp-config", "--no-session-persistence"):
        parser.add_argument(flag, action="store_true", required=True)
    parser.add_argument("--dangerously-skip-permissions", action="store_true")
    for flag in ("--output-format", "--model", "--setting-sources", "--max-turns", "--json-schema"):
        parser.add_argument(flag, required=True)
    for flag in ("--max-budget-usd", "--tools", "--append-system-prompt", "--permission-mode"):
        parser.add_argument(flag)
    flags = parser.parse_args()
    tools = [
        {"name": "Bash", "input_schema": {"type": "object"}},
        {"name": "StructuredOutput", "input_schema": json.loads(flags.json_schema)},
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": sys.stdin.read()}]
    say(type="system", subtype="init", model=flags.model, tools=[tool["name"] for tool in tools])
    while True:
        status, said = ask(
            {"model": flags.model, "max_tokens": 9000, "messages": messages, "tools": tools, "stream": True}
        )
        if status != 200:
            end("error_during_execution", result=f"API Error: {status} {said[0]['message']}")
        content = []
        results = []
        for block in said:
            if block["type"] != "tool_use":
                content.append(said_again(block))
                continue
            try:
                given = json.loads(block["raw"] or "{}")
            except ValueError:
                end("error_max_structured_output_retries")
            if block["name"] == "StructuredOutput":
                end("success", result=block["raw"], structured_output=given)
            content.append({key: block[key] for key in ("type", "id", "name")} | {"input": given})
            done = subprocess.run(["sh", "-c", given["command"]], capture_output=True, text=True, check=False)
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": done.stdout or "(nothing)"})
        messages.append({"role": "assistant", "content": content})
        say(type="assistant", message=messages[-1])
        if not results:
            end("success", result=content[-1]["text"])
        messages.append({"role": "user", "content": results})


main()
