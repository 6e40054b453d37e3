#!/bin/bash
#SBATCH -n 8
#SBATCH --nodelist=n[1-2]
#SBATCH --exclude=n3

srun -w n1 -n1 ./first &
srun -x n1 -N1 -n 2 ./others &
wait
