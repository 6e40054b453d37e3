#!/usr/bin/perl -w
#SBATCH --job-name=perl
#SBATCH --time=1:2:3
print 1;
