#!/bin/bash
#SBATCH --requeue
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --oversubscribe

true
