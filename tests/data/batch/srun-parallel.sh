#!/bin/bash
#SBATCH --ntasks=24
#SBATCH --cpus-per-task=1

srun="srun --exclusive -N1 -n1"
parallel="parallel --delay .2 -j $SLURM_NTASKS --joblog runtask.log --resume"
$parallel "$srun ./runtask arg1:{1}" ::: {1..128}
