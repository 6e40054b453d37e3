"""submitit: one job, an array, a result, a failure, cancelling, and a requeue when the time is over."""

import sys
import time
from pathlib import Path

import submitit


def add(a, b):
    return a + b


def fail():
    raise ValueError("on purpose")


def where():
    environment = submitit.JobEnvironment()
    return environment.job_id, environment.num_tasks, environment.global_rank


class Counter:
    """Counts to a number, and goes on where it was when it is requeued."""

    def __init__(self, goal):
        self.goal, self.count, self.starts = goal, 0, 0

    def __call__(self, marker):
        self.starts += 1
        Path(marker).write_text(str(self.starts))
        while self.count < self.goal or self.starts < 2:
            self.count += 1
            time.sleep(0.1)
        return self.starts

    def checkpoint(self, marker):
        return submitit.helpers.DelayedSubmission(self, marker)


def main(folder):
    executor = submitit.AutoExecutor(folder=folder + "/%j")
    assert executor.cluster == "slurm", executor.cluster
    executor.update_parameters(timeout_min=5, mem_gb=0.5, cpus_per_task=1, name="client")

    job = executor.submit(add, 40, 2)
    assert job.result() == 42
    # The result is there before the job has ended.
    while job.state in ("PENDING", "RUNNING", "COMPLETING"):
        time.sleep(0.2)
        job.watcher.update()
    assert job.state == "COMPLETED", job.state
    print("one job: 42")

    jobs = executor.map_array(add, [1, 2, 3, 4], [10, 20, 30, 40])
    assert [job.result() for job in jobs] == [11, 22, 33, 44]
    assert "_" in jobs[0].job_id, jobs[0].job_id
    print("array: 11 22 33 44")

    try:
        executor.submit(fail).result()
        raise SystemExit("the failure was not told")
    except submitit.core.utils.FailedJobError as error:
        assert "on purpose" in str(error), error
    print("failure: told")

    executor.update_parameters(tasks_per_node=2)
    job = executor.submit(where)
    results = job.results()
    assert [result[1:] for result in results] == [(2, 0), (2, 1)], results
    executor.update_parameters(tasks_per_node=1)
    print("two tasks: ranks 0 1")

    job = executor.submit(time.sleep, 600)
    while job.state != "RUNNING":
        time.sleep(0.2)
        job.watcher.update()
    job.cancel(check=False)
    while not job.done():
        time.sleep(0.2)
        job.watcher.update()
    assert job.state.startswith("CANCELLED"), job.state
    print("cancelled")

    # The signal that submitit asks for comes before the limit; the job saves itself and is requeued.
    executor.update_parameters(timeout_min=1, slurm_signal_delay_s=40)
    job = executor.submit(Counter(5), folder + "/starts")
    assert job.result() == 2
    print("requeued on timeout")


main(sys.argv[1])
