#!/bin/bash
#SBATCH --dependency=afterok:100:101,afterany:102
#SBATCH --hold
#SBATCH --priority=1000

./after
