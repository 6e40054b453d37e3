#!/bin/bash
#SBATCH -J nf-ALIGN_(3)
#SBATCH -o /tmp/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -c 4
#SBATCH -t 04:00:00
#SBATCH --mem 8192M
#SBATCH -p short

./.command.run
