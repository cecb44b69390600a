"""Traces in an S3-compatible server: the same numbers as from a folder, whatever breaks."""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import run, status
from pyarrow import fs

import simkit
import traces
from traces import stores, streamed
from traces.errors import TraceError
from traces.streamed import LEAST, stream
from traces.subset import select
from traces.trace import load
from traces.validate import validate
from traces.writer import add_file, save

RULES = ["fixed(3)", "svip(h=0.8)", "oracle"]


@pytest.fixture(scope="module")
def server():
    """moto's server in a process of its own; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield port
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixteen prompts of `reference`, in four shards, with a drafter that was attached."""
    place = tmp_path_factory.mktemp("store") / "some trace"
    save(select(load("reference"), range(0, 128, 8)), place, batch_size=4)
    assert status("attach", place, "--drafter", "suffix", "--name", "text") == 0
    return place


@pytest.fixture(autouse=True)
def copies(tmp_path, monkeypatch):
    """Copies lie in a folder of the test's own, and what is tried again is tried soon."""
    monkeypatch.setenv(stores.FOLDER, str(tmp_path / "copies"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(stores, "_WAIT_S", 0.01)
    return tmp_path / "copies"


def client(port):
    return fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )


def put(port, folder, bucket="bucket") -> str:
    """Put a trace into the server; its URL, a key and all."""
    there = client(port)
    there.create_dir(bucket)
    fs.copy_files(str(folder), f"{bucket}/runs/{folder.name}", destination_filesystem=there)
    return url(port, f"{bucket}/runs/{folder.name}")


def url(port, path):
    there = f"endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    return f"s3://key:secret@{path.replace(' ', '%20')}?{there}"


@pytest.fixture
def trace_url(server, folder, request):
    return put(server, folder, request.node.name.replace("_", "-").split("[")[0][:60])


def replayed(trace, **how):
    return simkit.replay(trace, RULES, **how).frame


def test_a_trace_is_replayed_as_from_its_folder(trace_url, folder, copies):
    trace = traces.load(trace_url)
    assert not list(copies.rglob("*.parquet")), "files were brought before they were asked for"
    assert replayed(trace).equals(replayed(str(folder)))
    assert trace.drafters == ["text"]
    cost = "linear(draft_s=0, target_s=1)"
    mine, whole = (simkit.replay(load(t, "text"), "fixed(4)", cost) for t in (trace_url, folder))
    assert mine.frame.equals(whole.frame)
    below = trace_url.replace("?", "/drafters/text?")
    assert simkit.replay(below, "fixed(4)", cost).frame.equals(whole.frame)
    assert validate(trace_url) == []


def test_it_is_read_in_windows_and_copies_stay_small(trace_url, folder, copies, monkeypatch):
    monkeypatch.setattr(streamed, "_FEWEST", 1)
    monkeypatch.setattr(streamed, "_SHARE", 2e-5)
    monkeypatch.setenv(stores.LIMIT, "1kB")
    trace = stream(trace_url, memory=LEAST)
    assert len(trace.ranges) == 4
    assert replayed(trace).equals(replayed(str(folder)))
    assert not list(copies.rglob("positions/*.parquet")), "windows that were read stay"


def test_nothing_is_brought_twice_and_the_copy_needs_no_key(trace_url, folder, monkeypatch):
    brought = []
    monkeypatch.setattr(stores, "on_bring", lambda *what: brought.append(what))
    first = traces.load(trace_url)
    replayed(first)
    replayed(traces.load(trace_url))
    place = "/".join(trace_url.partition("?")[0].split("@")[1].split("/"))
    assert {what[0] for what in brought} == {f"s3://{place}"}
    assert first.place == f"s3://{place}" and repr(first).startswith(f"<Trace s3://{place}:")
    missing = [name for name in first.manifest.files if not (first.path / name).exists()]
    again = len(brought)
    replayed(traces.load(first.path))  # a copy is a folder like any other
    assert len(brought) == again and set(missing) <= {"latency.parquet"}


def test_what_changes_in_the_store_is_another_copy(server, trace_url, folder, tmp_path):
    before = traces.load(trace_url)
    changed = shutil.copytree(folder, tmp_path / folder.name)
    add_file(changed, "latency.parquet", load("reference").latency())
    put(server, changed, trace_url.split("@")[1].split("/")[0])
    after = traces.load(trace_url)
    assert after.path != before.path and after.latency() is not None
    assert before.latency() is None, "the first copy has what it had"


@pytest.mark.parametrize(
    "broken, says",
    [
        (lambda data: None, "positions/00001.parquet: missing"),
        (lambda data: data[:-9], "positions/00001.parquet: truncated"),
        (lambda data: data[:999] + b"?" + data[1000:], "positions/00001.parquet: corrupt"),
    ],
    ids=["missing", "cut", "changed"],
)
def test_a_damaged_file_is_one_line(server, folder, request, capsys, broken, says):
    bucket = f"damage-{request.node.callspec.id}"
    file = f"{bucket}/runs/{folder.name}/positions/00001.parquet"
    where = put(server, folder, bucket)
    data = broken((folder / "positions/00001.parquet").read_bytes())
    client(server).delete_file(file)
    if data is not None:
        with client(server).open_output_stream(file) as out:
            out.write(data)
    assert refused(capsys, "replay", where, "--policy", "fixed(2)").startswith(
        f"simkit: s3://{bucket}/runs/some%20trace/{says}"
    )


class Proxy:
    """Stands before the server and breaks some connections after some bytes."""

    def __init__(self, port, breaks, after, silent=False):
        self.port, self.breaks, self.after, self.broken = port, breaks, after, 0
        self._silent = threading.Event() if silent else None
        self._listen = socket.create_server(("127.0.0.1", 0))
        self.own = self._listen.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listen.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as there:
            up = threading.Thread(target=pump, args=(client, there), daemon=True)
            up.start()
            sent = 0
            while part := received(there):
                sent += len(part)
                if sent > self.after and self.broken < self.breaks:
                    self.broken += 1
                    if self._silent:
                        self._silent.wait(60)
                    client.shutdown(socket.SHUT_RDWR)
                    return
                try:
                    client.sendall(part)
                except OSError:
                    return

    def close(self):
        self._listen.close()
        if self._silent:
            self._silent.set()


def received(connection):
    try:
        return connection.recv(2**14)
    except OSError:
        return b""


def pump(source, sink):
    while part := received(source):
        try:
            sink.sendall(part)
        except OSError:
            return


@contextmanager
def behind(server, trace_url, **faults):
    """A proxy, and the trace's address behind it."""
    proxy = Proxy(server, **faults)
    try:
        yield proxy, trace_url.replace(f"%3A{server}", f"%3A{proxy.own}")
    finally:
        proxy.close()


def test_a_connection_that_breaks_is_tried_again(server, trace_url, folder):
    with behind(server, trace_url, breaks=5, after=20_000) as (proxy, through):
        assert replayed(through).equals(replayed(str(folder)))
    assert proxy.broken == 5


def test_one_that_says_nothing_more_is_given_up(server, trace_url, capsys, monkeypatch):
    monkeypatch.setattr(stores, "_TRIES", 1)
    monkeypatch.setattr(stores, "_PATIENCE_S", 0.5)
    faults = {"breaks": 10**9, "after": 60_000, "silent": True}
    with behind(server, trace_url, **faults) as (_, through):
        line = refused(capsys, "replay", through, "--policy", "fixed(2)")
    assert "no answer in 0.5 s" in line


def test_one_that_always_breaks_is_one_line(server, trace_url, capsys, monkeypatch):
    monkeypatch.setattr(stores, "_TRIES", 2)
    faults = {"breaks": 10**9, "after": 60_000}  # what is listed comes through
    with behind(server, trace_url, **faults) as (_, through):
        line = refused(capsys, "replay", through, "--policy", "fixed(2)")
    assert line.startswith("simkit: s3://") and "(tried 2 times)" in line and "secret" not in line


def refused(capsys, *words) -> str:
    """The one line on which a command ends."""
    ended, out, err = run(capsys, *words)
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert (ended, len(lines), out) == (2, 1, ""), (out, err)
    return lines[0]


def test_stores_that_are_none(server, trace_url, capsys):
    cases = {
        "gopher://key:secret@x/y": "gopher://x/y: no such kind of store is known (Unrecognized",
        "s3:/key:secret@bucket/x": "s3:/bucket/x: a URL begins with s3://",
        "s3://key:se/secret@bucket/x": "s3://bucket/x: write a key's / as %2F",
        url(server, "nobucket/x"): "s3://nobucket/x: no such ",
        url(server, trace_url.split("@")[1].partition("?")[0] + "/positions"): "not a trace",
        url(1, "bucket/x"): "s3://bucket/x: the store cannot be reached (",
        "s3://": "s3://: ",
    }
    for where, says in cases.items():
        line = refused(capsys, "info", where)
        assert says in line and "secret" not in line


TOKEN = (
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of Could not"
)
TOKEN += " create a OAuth2 access token to authenticate the request. The request was not sent, as"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (TOKEN, f"no credentials were found ({TOKEN[:119]}…)"),
        ("N5Azure4AuthenticationExceptionE: Failed", "no credentials were found (N5Azure4"),
        ("AWS Error ACCESS_DENIED during ListObjectsV2", "access is denied (AWS Error"),
        ("AWS Error NO_SUCH_BUCKET during HeadBucket", "no such bucket (AWS Error"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 6", "the store cannot be reached (AWS"),
        ("odd", "the store cannot be read (odd)"),
        ("", "the store cannot be read (OSError)"),
    ],
)
def test_what_a_library_says_comes_behind_our_words(theirs, ours, capsys, monkeypatch):
    def refuse(uri):
        raise OSError(theirs)

    monkeypatch.setattr(stores, "impatient", refuse)
    stores._system.cache_clear()
    assert refused(capsys, "info", "gs://b/x").startswith(f"simkit: gs://b/x: {ours}")


def test_a_store_is_only_read(trace_url, folder, tmp_path, capsys):
    samples = load("reference").latency()
    with pytest.raises(TraceError, match="a store is only read"):
        add_file(load(trace_url).path, "latency.parquet", samples)
    assert "a store is only read" in refused(capsys, "detach", trace_url, "text")
    spec = ["--drafter", "prompt_lookup", "--name", "other"]
    assert "a store is only read" in refused(capsys, "attach", trace_url, *spec)
    source = tmp_path / "outputs.jsonl"
    source.write_text(json.dumps({"prompt_token_ids": [1, 2], "output_token_ids": [3]}) + "\n")
    there = "s3://key:secret@bucket/new"
    for words in (
        ["import", "tokens", source, "--out", there],
        ["figures", "reference", "--only", "frontier", "--out", there],
        ["sweep", folder, "--policy", "fixed(2)", "-o", f"{there}/sweep.parquet"],
    ):
        line = refused(capsys, *words)
        assert "s3://bucket/new" in line and "is a URL: write to a folder" in line
        assert "secret" not in line and not Path("s3:").exists()


def test_no_key_is_told_or_written(trace_url, tmp_path, capsys):
    cost, place = "linear(draft_s=0.1, target_s=1)", traces.load(trace_url).place
    page, table = tmp_path / "page.html", tmp_path / "sweep.parquet"
    quick = ["--cost", cost, "--no-figures", "-o", page]
    for words in (
        ["report", trace_url, *quick],
        ["sweep", trace_url, "--policy", "fixed(1:2)", "--cost", cost, "-o", table],
        ["compare", trace_url, "reference", "--policy", "fixed(1)", "--cost", cost],
        ["info", trace_url],
    ):
        assert status(*words) == 0, capsys.readouterr().err
    told = "".join(capsys.readouterr())
    for text in (told, page.read_text(), table.read_bytes().decode("latin-1")):
        assert "secret" not in text and "endpoint_override" not in text
    assert f"simkit figures {place}" in page.read_text()
    assert json.loads(pq.read_schema(table).metadata[b"simkit"])["trace"] == place


def test_a_copy_that_is_too_large_goes_when_another_is_opened(
    server, folder, trace_url, copies, monkeypatch
):
    replayed(trace_url)
    other = put(server, folder, "another")
    monkeypatch.setenv(stores.LIMIT, "10kB")
    both = [traces.load(other), traces.load(trace_url)]
    assert len({t.path for t in both if t.path.exists()}) == 2, "a copy in use went"
    monkeypatch.setattr(stores, "_OPENED", set())
    traces.load(other)
    assert len(list(copies.iterdir())) == 2, "another process may use a copy opened just now"
    monkeypatch.setattr(stores, "_OPENED", set())
    monkeypatch.setattr(stores, "_RECENT_S", 0.0)
    traces.load(other)
    assert len(list(copies.iterdir())) == 1
    monkeypatch.setenv(stores.LIMIT, "much")
    with pytest.raises(TraceError, match="is no size"):
        traces.load(other)


def test_a_file_url_is_the_folder(folder, copies):
    trace = traces.load(folder.as_uri())
    assert trace.path == folder and not copies.exists()


def damaged(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def short(file):
    file.write_bytes(file.read_bytes()[:-9])


def empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("spoil", [damaged, short, empty])
def test_a_spoilt_copy_is_brought_again(trace_url, folder, copies, spoil):
    """Of every file of a copy, also where it was read and found to be fine before."""
    assert validate(trace_url) == []
    wanted = replayed(str(folder))
    assert replayed(trace_url).equals(wanted)
    for file in sorted(copies.rglob("*.parquet")):
        spoil(file)
    assert replayed(trace_url).equals(wanted)
    spoil(next(iter(sorted(copies.rglob("positions/*.parquet")))))
    assert validate(trace_url) == []
    spoil(next(iter(sorted(copies.rglob("sequences.parquet")))))
    assert replayed(stream(trace_url, memory=LEAST)).equals(wanted)
