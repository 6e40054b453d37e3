"""dask-jobqueue: workers as jobs, work on them, and their end."""

import subprocess
import sys
import time

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def queue():
    return subprocess.check_output(["squeue", "-h", "-o", "%j"], text=True).split()


def main(folder):
    with SLURMCluster(
        queue="main",
        cores=2,
        processes=1,
        memory="1GB",
        walltime="00:10:00",
        interface="lo",
        log_directory=folder,
        local_directory=folder,
        job_extra_directives=["--job-name=client-worker"],
    ) as cluster:
        print(cluster.job_script())
        with Client(cluster) as client:
            cluster.scale(jobs=2)
            client.wait_for_workers(2, timeout=120)
            assert client.submit(sum, range(10)).result(timeout=60) == 45
            squares = client.gather(client.map(lambda number: number * number, range(50)))
            assert squares == [number * number for number in range(50)]
            print("squares")
            assert queue().count("client-worker") == 2, queue()
            cluster.scale(jobs=1)
            while len(client.scheduler_info()["workers"]) > 1:
                time.sleep(0.2)
            print("scaled down")
    while "client-worker" in queue():
        time.sleep(0.2)
    print("gone")


if __name__ == "__main__":
    main(sys.argv[1])
