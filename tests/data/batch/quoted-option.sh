#!/bin/bash
#SBATCH "--job-name=quoted whole"
#SBATCH --comment='it"s'
true
