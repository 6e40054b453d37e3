#!/bin/sh
#SBATCH	--ntasks=64
#SBATCH        --ntasks-per-core=1

#SBATCH # nothing here
## SBATCH --time=1
#SBTACH --exclusive
#SBATCH --comment "run 100 200"    # the operator's words
#SBATCH -t 06-00:59
#SBATCH --array=0-71,100-171:2,400-471%10  # in parts
#SBATCH --wait-all-nodes 0

srun -K1 --kill-on-bad-exit -l ./solver
