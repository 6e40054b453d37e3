#!/usr/bin/env bash
#SBATCH --job-name="nf-core/rnaseq head"
#SBATCH --output=%x_%j.log
#SBATCH --time=7-00:00:00
#SBATCH --partition=debug,long
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --export=ALL,NXF_OPTS=-Xms1g
#SBATCH --no-requeue
nextflow run nf-core/rnaseq -profile slurm
