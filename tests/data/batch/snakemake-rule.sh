#!/bin/bash
#SBATCH --parsable
#SBATCH --ntasks 1
#SBATCH --cpus-per-task 8
#SBATCH --mem 4000M
#SBATCH --time 120
#SBATCH --comment rule_map_wildcards_a

bwa mem -t 8 ref.fa a.fq > a.sam
