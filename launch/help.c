/* The text of --help. */
#include "help.h"

#include <stdarg.h>
#include <stdio.h>

const char help_usage[] =
	"usage: tuttirun -n RANKS [options] [--] PROGRAM [ARGUMENTS]\n"
	"       tuttirun -n RANKS --hosts A,B [options] [--] PROGRAM [ARGUMENTS]\n"
	"       tuttirun -n RANKS --nnodes N --node-rank K --master HOST:PORT [options] [--] "
	"PROGRAM\n"
	"tuttirun --help explains the options.\n";

/* clang-format off */
const char help_text[] =
	"\n"
	"Runs PROGRAM as the ranks of one job and passes their output on, line by line.\n"
	"\n"
	"  -n, --ranks N       ranks on this machine; every machine of a job has as many. auto:\n"
	"                      one for each of its GPUs, or else of its CPUs; gpu, cpu: of those\n"
	"      --nproc-per-node N, -np N\n"
	"                      the same\n"
	"  -g, --gpus, --devices 0,1\n"
	"                      the GPUs that the ranks may use: sets CUDA_VISIBLE_DEVICES. A rank\n"
	"                      takes the one with the number LOCAL_RANK of them, in turn. -n is as\n"
	"                      many by itself. -g 0 1 is the same as -g 0,1\n"
	"      --hosts A,B     runs -n ranks on each of these machines, by ssh, which must ask\n"
	"                      for no password; this one is started without\n"
	"      --hostfile F    a file with a machine a line; 'slots=N' behind it is -n\n"
	"      --agent         what that starts there; for itself only\n"
	"      --ssh COMMAND   what runs a command on a machine (ssh -o BatchMode=yes\n"
	"                      -o ConnectTimeout=60 -o ServerAliveInterval=15)\n"
	"      --nnodes N      machines in the job (1); run tuttirun once on each of them\n"
	"      --node-rank K   which of them this is, from 0\n"
	"      --master H:P    where rank 0 serves: a name or address of machine 0, and a port\n"
	"      --master-addr H, -p, --port, --master-port P\n"
	"                      the same in two. The default port is 29500 with several\n"
	"                      machines; with one it is a free port, also if P is taken\n"
	"      --timeout S     ends the job after S seconds, with exit code 124, and says which call\n"
	"                      of Tutti each rank is in\n"
	"      --trace-dir D   sets TUTTI_TRACE_DIR: the folder of traces of failures, and of all\n"
	"                      ranks when S seconds are over\n"
	"      --log-dir D     writes what rank R prints to D/rank_R.log as well, on its machine\n"
	"      --max-restarts R\n"
	"                      starts failed ranks of this machine again, R times in all (0);\n"
	"                      with --hosts all ranks of all machines\n"
	"      --restart rank|job\n"
	"                      with --max-restarts: the failed rank alone, which the others take in\n"
	"                      by tutti_comm_grow; or all ranks of this machine. Default: that rank,\n"
	"                      and all where no rank calls tutti_comm_grow within 5 s; with\n"
	"                      --hosts the ranks of all machines\n"
	"      --bind-to core  each rank to its part of the cores; where there are more ranks than\n"
	"                      cores, or another tuttirun has bound ranks to them, to none (default)\n"
	"      --bind-to numa  each rank to the cores of one NUMA node\n"
	"      --bind-to none\n"
	"      --report-bindings\n"
	"                      says on stderr to which cores each rank is bound, or why to none\n"
	"      --mesh dp=2,tp=4\n"
	"                      prints the ranks as a grid with these axes, and sets TUTTI_MESH, the\n"
	"                      axes of a tutti_mesh_create that is passed none; a size of 0 is what\n"
	"                      the others leave\n"
	"      --local-ranks T each process makes T ranks of the job, each with a thread, by\n"
	"                      tutti_init_all and config.local_ranks: sets TUTTI_LOCAL_RANKS, and\n"
	"                      --mesh and --explain count the ranks of all processes\n"
	"  -p, --prefix        begins every line with the rank it came from; -p 29500 is the port\n"
	"      --progress      a line below the output, on a terminal: how many ranks run and have\n"
	"                      joined, and for how long; with --hosts how many hosts run\n"
	"      --dry-run       prints what would be started, with the environment, and starts nothing\n"
	"      --explain       prints a table of the ranks that would be started, with what each of\n"
	"                      their numbers means, and starts nothing; it needs no PROGRAM\n"
	"  -h, --help, --version\n"
	"\n"
	"Names of options may have _ for -, and be short where no other begins so.\n"
	"The first rank that fails ends the job: the others have 0.5 s to say why they fail, too,\n"
	"then get SIGTERM and, 2 s later, SIGKILL; tuttirun exits with that rank's code, or with\n"
	"128 + the signal that killed it; with 3 when all ended well, but what they wrote could\n"
	"not be passed on to stdout.\n"
	"With --max-restarts a failed rank is started again instead, with TUTTI_RESTARTED in its\n"
	"environment: it joins the others when they call tutti_comm_grow. Once a rank has ended\n"
	"well, or R are used up, the next failure ends the job. With --restart job all ranks are\n"
	"ended as above and started again, without TUTTI_RESTARTED. By default that is done where\n"
	"a rank that was started again waits 5 s for the others to call tutti_comm_grow, or one\n"
	"of them exits with an error first; and where none of them, or no restart, is left: as\n"
	"one restart with those before. With --restart rank only where no rank is left. With\n"
	"--hosts --restart job, the default there, means all ranks of all machines. Jobs with\n"
	"--nnodes need the same --restart on each machine; their default is rank.\n"
	"SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second SIGINT kills.\n"
	"Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR,\n"
	"MASTER_PORT and TUTTI_SECRET in their environment; also OMP_NUM_THREADS, MKL_NUM_THREADS\n"
	"and OPENBLAS_NUM_THREADS, the number of cores of a rank, where they are not set. With one\n"
	"machine, and with --hosts, the secret is fresh for every job, unless TUTTI_SECRET or\n"
	"TUTTI_SECRET_FILE is set; with --nnodes set one of them, the same on all.\n"
	"--hosts runs this tuttirun on each machine, from the same path and in the same folder. It\n"
	"sends them the secret and TUTTI_, OMP_, MKL_, OPENBLAS_, CUDA_, NCCL_, UCX_ and PYTHON\n"
	"variables, PATH and LD_LIBRARY_PATH over ssh's stdin, and what a file that is stdin has,\n"
	"for rank 0. Where it or the connection ends, so do the ranks there.\n";
/* clang-format on */

int help_wrong(const char *format, ...)
{
	va_list args;

	fputs("tuttirun: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n%s", help_usage);
	return 2;
}
