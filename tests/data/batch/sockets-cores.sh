#!/bin/bash
#SBATCH --cores-per-socket=8 --sockets-per-node=2 -B 2:8:1
true
