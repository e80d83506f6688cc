"""Transcripts never stop an attempt, never hold the key, never leave their folder."""

import json
import logging
import os
from pathlib import Path

import pytest

from agents.models.transcripts import Transcript, Transcripts

SECRET = 'sk-"quoted"-0123'


def test_lines_are_appended_and_flushed(tmp_path: Path) -> None:
    transcripts = Transcripts(tmp_path / "deep" / "er", secrets=(SECRET,))
    for _ in range(2):
        with transcripts.open("greet", 3) as transcript:
            transcript.write("user", content="\ud800 ü\n")
            assert (tmp_path / "deep/er/greet.3.jsonl").read_text().endswith("\n")
    lines = (tmp_path / "deep/er/greet.3.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["user", "user"]


def test_the_key_is_hidden_however_it_is_written(tmp_path: Path) -> None:
    with Transcripts(tmp_path, secrets=(SECRET,)).open("greet", 1) as transcript:
        transcript.write("answer", content=[{"input": {"command": f"echo {SECRET}"}}])
    text = (tmp_path / "greet.1.jsonl").read_text()
    assert "0123" not in text
    assert "[key]" in text


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "x" * 300])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Transcripts(tmp_path / "in", secrets=(SECRET,)).open(name, 1) as transcript,
    ):
        transcript.write("user", content="lost")
    assert list(tmp_path.rglob("*.jsonl")) == []
    assert "transcript lost" in caplog.text


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "greet.1.jsonl").symlink_to(tmp_path / "elsewhere")
    with Transcripts(tmp_path, secrets=(SECRET,)).open("greet", 1) as transcript:
        transcript.write("user", content="lost")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_can_not_be_made_costs_the_transcript_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Transcripts(tmp_path / "file" / "in", secrets=(SECRET,)).open("greet", 1) as transcript:
        transcript.write("user", content="lost")


def test_a_full_disk_costs_the_transcript_only(caplog: pytest.LogCaptureFixture) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    transcript = Transcript(descriptor)
    with caplog.at_level(logging.WARNING):
        transcript.write("user", content="lost")
        transcript.write("user", content="lost too")
    os.close(descriptor)
    assert [record.getMessage() for record in caplog.records] == ["transcript lost"]
