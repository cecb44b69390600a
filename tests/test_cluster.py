"""Work over a local Ray cluster: the same bits as without, also when a worker is killed."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import refused
from test_bad_input import pair  # noqa: F401

import simkit
from simkit import cluster, serving
from simkit.cluster import Cluster, ClusterError, Job
from simkit.errors import ReplayError
from traces import synthetic

pytestmark = pytest.mark.slow
COST = "linear(draft_s=0.002, target_s=0.03)"
SPECS = ["fixed(0:6)", "svip(h=0.2:1:0.2)", "heuristic(schedule=heuristic)", "prophet"]


@pytest.fixture(scope="module")
def ray():
    """A cluster of two workers that all tests share; one is asked for where two show no more.

    A worker is a process that takes four seconds to start, and minutes beside other tests if it
    is as nice as Ray makes it.
    """
    library = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    library.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with cluster.joined("local", 2):
        yield library


def test_results_come_in_order(ray):
    def work(held, item):
        time.sleep(0.2)
        return held, item

    found = list(Cluster(ray).map(Job(os.getpid, work), iter(range(40))))
    assert [item for _, item in found] == [*range(40)]
    assert len({process for process, _ in found}) == 2  # each makes what it holds once


def test_a_sweep_is_the_same_to_the_bit(ray):
    seen = []
    here = simkit.sweep("reference", SPECS, by="task")
    there = simkit.sweep(
        "reference", SPECS, by="task", ray="local", progress=lambda *n: seen.append(n)
    )
    assert here.frame.equals(there.frame)
    assert here.notes == there.notes
    assert seen[-1] == (len(here.policies),) * 2


def test_tuning_is_the_same_to_the_bit(ray):
    here = simkit.tune("reference", SPECS[:2])
    there = simkit.tune("reference", SPECS[:2], ray="local")
    assert here.records() == there.records()
    assert all(np.array_equal(here.held_out[k], there.held_out[k]) for k in here.held_out)


def test_serving_is_the_same_to_the_bit(ray):
    given = dict(cost="atlas(target=qwen3-8b, draft=qwen3-0.6b)", requests=40, seeds=2)
    chosen = ["ema(3)", "static(2)", "prophet(4)"]
    for load, threads in (({"concurrency": [1, 8]}, 2), ({"arrivals": np.linspace(0, 2, 40)}, 1)):
        here = serving.serve("reference", chosen, **given, **load)
        there = serving.serve("reference", chosen, **given, **load, ray="local", workers=threads)
        assert here.frame.equals(there.frame)
        assert here.requests().equals(there.requests())


def files(folder):
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_recording_is_the_same_bytes(ray, pair, tmp_path):  # noqa: F811
    given = dict(target=str(pair / "target"), draft=str(pair / "draft"), max_new_tokens=8)
    given |= dict(max_draft=4, batch_size=1, temperature=1.0)
    given["prompts"] = [f"def f{n}(x):" for n in range(5)]
    simkit.record(out=tmp_path / "here", **given)
    simkit.record(out=tmp_path / "there", **given, ray="local")
    assert files(tmp_path / "here") == files(tmp_path / "there")


def once_killed(held, item):
    """The item; the first worker that gets item 3 kills itself in the middle of it."""
    mark, number = item
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_loses_nothing(ray, tmp_path):
    items = [(str(tmp_path / "mark"), number) for number in range(20)]
    assert list(Cluster(ray).map(Job(os.getpid, once_killed), items)) == [*range(20)]
    assert (tmp_path / "mark").exists()


def test_a_sweep_goes_on_when_a_worker_is_killed(ray, tmp_path, monkeypatch):
    """A rule of one's own kills the process that it runs in, once."""
    mark = tmp_path / "mark"
    here = os.getpid()

    def dying(drafted, row):
        if os.getpid() != here and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return drafted >= 2

    wanted = simkit.sweep("reference", [dying, *SPECS], COST)
    assert not mark.exists()
    found = simkit.sweep("reference", [dying, *SPECS], COST, ray="local", workers=1)
    assert mark.exists()
    assert wanted.frame.equals(found.frame)


def test_a_recording_goes_on_when_a_worker_is_killed(ray, pair, tmp_path, monkeypatch):  # noqa: F811
    from simkit import recording

    mark, shard = str(tmp_path / "mark"), recording._shard

    def dying(loaded, batch):
        once_killed(loaded, (mark, batch[0]))
        return shard(loaded, batch)

    given = dict(target=str(pair / "target"), draft=str(pair / "draft"), max_new_tokens=8)
    given |= dict(max_draft=4, batch_size=1, prompts=[f"def f{n}(x):" for n in range(5)])
    simkit.record(out=tmp_path / "here", **given)
    monkeypatch.setattr(recording, "_shard", dying)
    simkit.record(out=tmp_path / "there", **given, ray="local")
    assert Path(mark).exists()
    assert files(tmp_path / "here") == files(tmp_path / "there")


def lost(held, item):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_every_worker_is_given_up(ray):
    with pytest.raises(ClusterError, match="3 workers were lost, each on the same task"):
        list(Cluster(ray, 1).map(Job(os.getpid, lost), [1]))


def counted(held, mark):
    with open(mark, "a") as file:
        file.write("tried\n")
    raise ReplayError("as a user reads it")


def test_a_users_error_is_not_tried_again(ray, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(ReplayError, match="^as a user reads it$"):
        list(Cluster(ray, 1).map(Job(os.getpid, counted), [str(mark)]))
    assert mark.read_text() == "tried\n"


def test_an_error_is_the_line_that_it_is_without(ray, capsys):
    given = ["sweep", "reference", "--policy", "fixed(1)", "--policy", "fixed(300)"]
    there = refused(capsys, *given, "--ray", "local", "--workers", "1")
    assert refused(capsys, *given, "--workers", "1") == there


def test_a_node_that_does_not_see_the_trace_says_so(ray, tmp_path, monkeypatch):
    from simkit.sweeps import engine

    real = engine._opened

    def elsewhere(place, *rest):
        return real(place + "-elsewhere", *rest)

    monkeypatch.setattr(engine, "_opened", elsewhere)
    with pytest.raises(simkit.errors.UserError, match="no such trace on .*, where a worker runs"):
        simkit.sweep("reference", "fixed(1)", ray="local", workers=1)


def test_a_trace_in_memory_is_refused(ray):
    trace = synthetic.iid(4, 8, 0.8, max_draft=4, seed=0)
    with pytest.raises(ClusterError, match="save it"):
        simkit.sweep(trace, "fixed(1)", COST, ray="local")


def test_without_ray_one_line_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    given = ["sweep", "reference", "--policy", "fixed(1)", "--ray", "local"]
    line = "simkit: --ray needs ray: pip install 'draft-simkit[distributed]'"
    assert refused(capsys, *given) == line


class Busy:
    """A cluster of four cores, of which so many are free at each look."""

    def __init__(self, *free):
        self.free = list(free)

    def cluster_resources(self):
        return {"CPU": 4.0, "GPU": 0.0}

    def available_resources(self):
        free = self.free.pop(0) if len(self.free) > 1 else self.free[0]
        return {"CPU": free} if free else {}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.2)
    monkeypatch.setattr(cluster, "_LOOK_S", 0.01)


def test_what_is_free_counts_and_not_what_there_is(impatient):
    assert Cluster(Busy(3.0))._room(Job(None, None)) == 3
    assert Cluster(Busy(3.0), 2)._room(Job(None, None)) == 2
    assert Cluster(Busy(3.0))._room(Job(None, None, cpus=2)) == 1
    assert Cluster(Busy(0, 0.5, 2.0))._room(Job(None, None)) == 2


def test_a_busy_cluster_is_not_waited_for_for_ever(impatient):
    with pytest.raises(ClusterError, match="is busy: in 0.2 s there was no room for a worker"):
        Cluster(Busy(1.0))._room(Job(None, None, cpus=2))
    with pytest.raises(ClusterError, match="has no room for a worker, which takes 1 GPU"):
        Cluster(Busy(4.0))._room(Job(None, None, gpus=1))


def test_workers_that_find_no_place_are_not_waited_for_either(impatient):
    """Cores are free, but not so many on one node; or others were faster."""
    from types import SimpleNamespace

    def remote(**options):
        def made(kind):
            method = SimpleNamespace(remote=lambda *given: object())
            return SimpleNamespace(remote=lambda: SimpleNamespace(there=method, ready=method))

        return made

    killed = []
    busy = Busy(4.0)
    busy.put, busy.remote, busy.kill = (lambda job: job), remote, killed.append
    busy.wait = lambda references, timeout: ([], references)
    busy.exceptions = SimpleNamespace(RayError=RuntimeError)
    with pytest.raises(ClusterError, match="is busy"):
        list(Cluster(busy).map(Job(None, None, cpus=2), [1]))
    assert len(killed) == 2
