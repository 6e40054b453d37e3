#!/bin/bash
#SBATCH -o "%u/%x.%N.%n.%t.%s.%J.%%.out"
#SBATCH -e err_%4j_%3a.txt
true
