#!/bin/bash
#SBATCH --nodes=2-4
#SBATCH --ntasks-per-node=8
#SBATCH --contiguous
#SBATCH --tmp=10G

srun --ntasks-per-node=8 --mpi=pmi2 ior -a MPIIO -b 1g -t 4m -o /scratch/ior.$SLURM_JOB_ID
