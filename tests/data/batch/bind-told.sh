#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --hint=nomultithread,memory_bound
#SBATCH --distribution=:block
#SBATCH --time=30

srun --accel-bind=gn --cpu-bind=cores,verbose ./bandwidth
srun -u --cpu_bind=v ./bandwidth --again
