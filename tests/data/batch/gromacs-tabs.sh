#!/bin/bash -l
#SBATCH	-J	md_prod
#SBATCH	-N	1
#SBATCH	--ntasks-per-node=2
#SBATCH	--cpus-per-task	4
#SBATCH	--gres=gpu:a100:2
#SBATCH	--time 1-0
#SBATCH	--signal=B:USR1@90
trap 'touch STOP' USR1
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun gmx_mpi mdrun -deffnm md -cpi -maxh 23.9 &
wait
