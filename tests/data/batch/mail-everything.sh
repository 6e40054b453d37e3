#!/bin/bash
#SBATCH --mail-type=BEGIN,END,FAIL,REQUEUE,TIME_LIMIT_80
#SBATCH --mail-user=a@example.org
#SBATCH --time=5

true
