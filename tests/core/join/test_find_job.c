/* Breaks when a launcher's variables are misread, or a contradiction among them is not noticed. */
#include "core/log.h"
#include "core/status.h"
#include "core/join/launcher.h"
#include "core/join/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

static const char *const all_names[] = {"RANK",
					"WORLD_SIZE",
					"LOCAL_RANK",
					"LOCAL_WORLD_SIZE",
					"MASTER_ADDR",
					"MASTER_PORT",
					"TUTTIRUN_JOB",
					"TUTTIRUN_PORT_TAKEN",
					"TORCHELASTIC_RUN_ID",
					"SLURM_PROCID",
					"SLURM_NTASKS",
					"SLURM_LOCALID",
					"SLURM_JOB_NODELIST",
					"SLURM_STEP_NODELIST",
					"SLURM_NODELIST",
					"SLURM_JOB_ID",
					"SLURM_STEP_ID",
					"SLURM_STEP_NUM_TASKS",
					"ENVIRONMENT",
					"OMPI_COMM_WORLD_RANK",
					"OMPI_COMM_WORLD_SIZE",
					"OMPI_COMM_WORLD_LOCAL_RANK",
					"OMPI_COMM_WORLD_LOCAL_SIZE",
					"PMIX_NAMESPACE",
					"OMPI_MCA_ess_base_jobid",
					"PMI_RANK",
					"PMI_SIZE",
					"MPI_LOCALRANKID",
					"MPI_LOCALNRANKS",
					"TF_CONFIG"};

static struct job job;
static struct env env;
static tutti_config config;

static int clean(void **state)
{
	for (size_t i = 0; i < sizeof all_names / sizeof *all_names; i++)
		unsetenv(all_names[i]);
	env = (struct env){.timeout_ms = 1000};
	memset(&config, 0, sizeof config);
	memset(&job, 0, sizeof job);
	last_error_clear();
	return 0;
}

/* "NAME=value NAME=value" */
static void set_all(const char *list)
{
	char copy[1024], *save, *item;

	snprintf(copy, sizeof copy, "%s", list);
	for (item = strtok_r(copy, " ", &save); item; item = strtok_r(NULL, " ", &save)) {
		char *value = strchr(item, '=');
		*value++ = '\0';
		setenv(item, value, 1);
	}
}

static void found(const char *list)
{
	clean(NULL);
	set_all(list);
	if (job_find(&job, &config, &env) != TUTTI_OK)
		fail_msg("%s: %s", list, last_error());
}

static void refused(const char *list, const char *says)
{
	tutti_config kept = config;

	clean(NULL);
	config = kept;
	set_all(list);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	if (!strstr(last_error(), says))
		fail_msg("%s: \"%s\" does not say \"%s\"", list, last_error(), says);
	assert_int_equal(job.size, 0); /* written only on success */
}

static void check(const char *launcher, int rank, int size, const char *host, int port)
{
	assert_string_equal(job.launcher, launcher);
	assert_int_equal(job.rank, rank);
	assert_int_equal(job.size, size);
	assert_int_equal(job.meeting, JOB_TCP);
	assert_string_equal(job.host, host);
	assert_int_equal(job.port, port);
}

static void check_local(int rank, int size)
{
	assert_int_equal(job.local_rank, rank);
	assert_int_equal(job.local_size, size);
}

#define MASTER " MASTER_ADDR=node1 MASTER_PORT=29500"

static void nobody_is_alone(void **state)
{
	found("");
	assert_int_equal(job.meeting, JOB_ALONE);
	assert_int_equal(job.size, 1);
	assert_string_equal(job.launcher, "none");
	check_local(-1, -1);
	assert_int_equal(job_find(&job, NULL, &env), TUTTI_OK);
	found("RANK=0 WORLD_SIZE=1");
	assert_int_equal(job.meeting, JOB_ALONE);
	found("MASTER_ADDR=node1"); /* a place, but no rank */
	assert_int_equal(job.meeting, JOB_ALONE);
}

static void tuttirun_and_torchrun(void **state)
{
	found("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2" MASTER);
	check("environment", 3, 8, "node1", 29500);
	check_local(1, 2);
	assert_false(job.port_is_taken);
	found("RANK=3 WORLD_SIZE=8 TUTTIRUN_JOB=1" MASTER);
	check("tuttirun", 3, 8, "node1", 29500);
	check_local(-1, -1);
	assert_false(job.port_is_taken);
	found("RANK=3 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none" MASTER);
	check("torchrun", 3, 8, "node1", 29500);
	assert_true(job.port_is_taken);
	/* tuttirun --hosts has chosen the port. */
	found("RANK=3 WORLD_SIZE=8 TUTTIRUN_JOB=1 TUTTIRUN_PORT_TAKEN=1" MASTER);
	check("tuttirun", 3, 8, "node1", 29500);
	assert_true(job.port_is_taken);
	found("RANK=3 WORLD_SIZE=8 TUTTIRUN_JOB=1 TUTTIRUN_PORT_TAKEN=0" MASTER);
	assert_false(job.port_is_taken);
	/* tuttirun inside torchrun's process. */
	found("RANK=3 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none TUTTIRUN_JOB=1" MASTER);
	check("tuttirun", 3, 8, "node1", 29500);
	assert_false(job.port_is_taken);
	/* TUTTI_PORT is where rank 0 serves, also where another program has MASTER_PORT. */
	env.port = 4711;
	assert_int_equal(job_find(&job, NULL, &env), TUTTI_OK);
	check("tuttirun", 3, 8, "node1", 4711);
	set_all("TORCHELASTIC_RUN_ID=none");
	unsetenv("TUTTIRUN_JOB");
	assert_int_equal(job_find(&job, NULL, &env), TUTTI_OK);
	check("torchrun", 3, 8, "node1", 4711);
	assert_false(job.port_is_taken);
}

static void contradictions_are_named(void **state)
{
	refused("RANK=3", "RANK is set but WORLD_SIZE is not");
	refused("WORLD_SIZE=3", "WORLD_SIZE is set but RANK is not");
	refused("RANK=3 WORLD_SIZE=3" MASTER, "RANK=3 is not a rank of a world with WORLD_SIZE=3");
	refused("RANK=-1 WORLD_SIZE=3" MASTER, "RANK=-1 is not a number");
	refused("RANK=0 WORLD_SIZE=0" MASTER, "WORLD_SIZE=0");
	refused("RANK=0 WORLD_SIZE=x" MASTER, "WORLD_SIZE=x is not a number");
	refused("RANK=0 WORLD_SIZE=1e9" MASTER, "WORLD_SIZE=1e9");
	refused("RANK=0 WORLD_SIZE=99999999999999999999" MASTER, "WORLD_SIZE=9999");
	refused("RANK= WORLD_SIZE=2" MASTER, "RANK=");
	refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=x" MASTER, "LOCAL_RANK=x");
	refused("RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2" MASTER, "LOCAL_RANK=2");
	refused("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3" MASTER, "LOCAL_WORLD_SIZE=3");
	refused("RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT is not set");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR= MASTER_PORT=1", "MASTER_ADDR= has no host");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a:5 MASTER_PORT=1",
		"MASTER_ADDR=a:5 has a port, but must be a host alone");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=[::1]:5 MASTER_PORT=1",
		"MASTER_ADDR=[::1]:5 has a port");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a,b MASTER_PORT=1", "MASTER_ADDR=a,b has no host");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=1",
		"MASTER_ADDR=fe80::1 has a link-local IPv6 address without a scope");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=+1", "MASTER_PORT=+1");
	refused("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1x",
		"MASTER_PORT=1x");
	refused("RANK=+1 WORLD_SIZE=3" MASTER, "RANK=+1 is not a number");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT=0");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65536", "MASTER_PORT=65536");
	refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500x", "MASTER_PORT=29500x");
}

static void open_mpi(void **state)
{
	int port;

#define OMPI                                                                                       \
	"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "              \
	"OMPI_COMM_WORLD_LOCAL_SIZE="
	found(OMPI "4 PMIX_NAMESPACE=prterun-a@1");
	check("openmpi", 1, 4, "127.0.0.1", job.port);
	check_local(1, 4);
	assert_in_range(job.port, DERIVED_PORT_FIRST, DERIVED_PORT_FIRST + DERIVED_PORTS - 1);
	assert_true(job.port_is_taken);
	port = job.port;
	found(OMPI "4 PMIX_NAMESPACE=prterun-a@1");
	assert_int_equal(job.port, port);
	found(OMPI "4 PMIX_NAMESPACE=prterun-a@2");
	assert_int_not_equal(job.port, port);
	refused(OMPI "2", "MASTER_ADDR");
	found(OMPI "2" MASTER);
	check("openmpi", 1, 4, "node1", 29500);
	assert_false(job.port_is_taken);
	refused("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not");
	/* mpirun in a Slurm job; and torchrun's children of mpirun's. */
	found(OMPI "4 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n[1-2]");
	check("openmpi", 1, 4, "127.0.0.1", job.port);
	found(OMPI "4 RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x" MASTER);
	check("torchrun", 0, 2, "node1", 29500);
}

static void mpich(void **state)
{
	int port;

#define HYDRA "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS="
	found(HYDRA "4");
	check("mpich", 3, 4, "127.0.0.1", job.port);
	check_local(1, 4);
	assert_true(job.port_is_taken);
	port = job.port;
	found(HYDRA "4 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n[1-2]");
	check("mpich", 3, 4, "127.0.0.1", port);
	refused(HYDRA "2", "mpiexec -genv MASTER_ADDR");
	refused(HYDRA "2 MASTER_ADDR=node1", "MASTER_PORT is not set");
	found(HYDRA "2" MASTER);
	check("mpich", 3, 4, "node1", 29500);
	assert_false(job.port_is_taken);
	/* Slurm's PMI-2. */
	found("PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n[1-2]");
	check("slurm", 1, 2, "n1", job.port);
}

static void slurm(void **state)
{
	int port;

#define SLURM "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_NODELIST=node[03-04,7] "
	found(SLURM "SLURM_JOB_ID=1234");
	check("slurm", 5, 8, "node03", job.port);
	check_local(1, -1);
	assert_in_range(job.port, DERIVED_PORT_FIRST, DERIVED_PORT_FIRST + DERIVED_PORTS - 1);
	assert_true(job.port_is_taken);
	port = job.port;
	found(SLURM "SLURM_JOB_ID=1235");
	assert_int_not_equal(job.port, port);
	found(SLURM "SLURM_JOB_ID=1234 SLURM_STEP_ID=1");
	assert_int_not_equal(job.port, port);
	found(SLURM "SLURM_JOB_ID=1234" MASTER);
	check("slurm", 5, 8, "node1", 29500);
	found(SLURM "SLURM_STEP_NODELIST=other SLURM_STEP_NUM_TASKS=6");
	check("slurm", 5, 6, "other", job.port);
	refused("SLURM_PROCID=8 SLURM_NTASKS=8 SLURM_JOB_NODELIST=a", "SLURM_PROCID=8");
	refused("SLURM_PROCID=1 SLURM_NTASKS=8", "SLURM_JOB_NODELIST");
	refused("SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_JOB_NODELIST=a[1", "a[1");
	refused(SLURM "SLURM_JOB_ID=x", "SLURM_JOB_ID=x");
	/* A batch script has these variables, too, but is not a task of srun. */
	found(SLURM "ENVIRONMENT=BATCH");
	assert_int_equal(job.meeting, JOB_ALONE);
	found(SLURM "ENVIRONMENT=BATCH SLURM_STEP_ID=0");
	check("slurm", 5, 8, "node03", job.port);
}

static void host_lists(void **state)
{
	static const char *const right[][2] = {
		{"node1", "node1"},          {"a,b", "a"},
		{"node[01-03,7]", "node01"}, {"node[7,01-03],x", "node7"},
		{"r[1-2]n[3-4]", "r1n3"},    {"gpu-[10].x.org,b", "gpu-10.x.org"},
		{"n[1-2]-ib", "n1-ib"},      {"10.0.0.1", "10.0.0.1"}};
	static const char *const wrong[] = {"",       ",a",   "a[",      "a[]", "a[1",
					    "a[x]",   "a]",   "a[1-]b[", "a b", "a[[1]]",
					    "a[1]\n", "[,1]", "a/b"};
	char host[20];

	for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
		assert_int_equal(hostlist_first(right[i][0], host, sizeof host), TUTTI_OK);
		assert_string_equal(host, right[i][1]);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (hostlist_first(wrong[i], host, sizeof host) != TUTTI_ERR_INVALID)
			fail_msg("\"%s\" was taken as %s", wrong[i], host);
	assert_int_equal(hostlist_first("1234567890123456789", host, 20), TUTTI_OK);
	assert_int_equal(hostlist_first("12345678901234567890", host, 20), TUTTI_ERR_INVALID);
	assert_int_equal(hostlist_first("123456789012345[67890]", host, 20), TUTTI_ERR_INVALID);
}

static void the_config_comes_first(void **state)
{
	config = (tutti_config){.rank = 2, .world_size = 4, .rendezvous = "tcp://[fe80::1%lo]:9"};
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 2, 4, "fe80::1%lo", 9);
	config = (tutti_config){.rank = 2, .world_size = 4, .rendezvous = "tcp://[::1]:123"};
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 2, 4, "::1", 123);
	/* With a place of its own it may be another job than the launcher's. */
	set_all("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0" MASTER);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 2, 4, "::1", 123);
	check_local(-1, -1);
	/* Without one, it cannot. */
	config.rendezvous = NULL;
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "the config says rank 2 of 4, but the environment "
					     "(environment) says rank 0 of 2"));
	set_all("RANK=2 WORLD_SIZE=4 TUTTIRUN_JOB=1");
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 2, 4, "node1", 29500);
	check_local(0, -1);
	/* The rank comes from the launcher, the place from the config. */
	config = (tutti_config){.rendezvous = "tcp://h:1"};
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("tuttirun", 2, 4, "h", 1);
	/* Only the place from the environment. */
	clean(NULL);
	set_all("MASTER_ADDR=node1 MASTER_PORT=29500");
	config = (tutti_config){.rank = 1, .world_size = 2};
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 1, 2, "node1", 29500);
}

static void a_world_of_one_is_no_part_of_the_job(void **state)
{
	set_all("RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 TUTTIRUN_JOB=1" MASTER);
	config = (tutti_config){.world_size = 1};
	if (job_find(&job, &config, &env) != TUTTI_OK)
		fail_msg("%s", last_error());
	assert_string_equal(job.launcher, "config");
	assert_int_equal(job.rank, 0);
	assert_int_equal(job.size, 1);
	assert_int_equal(job.meeting, JOB_ALONE);
	check_local(-1, -1);
	set_all("RANK=2 WORLD_SIZE=nonsense");
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	/* Ranks that a restart adds come to a job of several. */
	env.restarted = 1;
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_int_equal(job.is_growing, 0);
}

static void impossible_configs_are_refused(void **state)
{
	config = (tutti_config){.rank = 4, .world_size = 4};
	refused("", "config.rank is 4");
	config = (tutti_config){.rank = -1, .world_size = 4};
	refused("", "config.rank is -1");
	config = (tutti_config){.world_size = -4};
	refused("", "config.world_size is -4");
	config = (tutti_config){.world_size = 1 << 20};
	refused("", "config.world_size is 1048576");
	config = (tutti_config){.rank = 1};
	refused("", "config.rank is 1 but config.world_size is 0");
	config = (tutti_config){.rank = 1, .world_size = 2};
	refused("", "MASTER_ADDR is not set");
	config = (tutti_config){.rendezvous = "tcp://h:1"};
	refused("", "nothing says which rank");
}

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void urls(void **state)
{
	static const char secret[] = SECRET;
	static const char *const wrong[] = {
		"",
		"tcp://",
		"tcp://h",
		"tcp://h:",
		"tcp://h:0",
		"tcp://:1",
		"tcp://h:x",
		"tcp://h:65536",
		"tcp://h:1/",
		"tcp://::1:1",
		"tcp://a b:1",
		"file://x",
		"file:///",
		"udp://h:1",
		"tutti://h:1/",
		"tutti://h:1",
		"tcp://h,i:1",
		"tutti://h,,i:1/" SECRET,
		"tutti://::1:1/" SECRET,
		"tutti://:1/" SECRET,
		"tutti://[fe80::7]:1/" SECRET,
	};
	char url[URL_BYTES], made[URL_BYTES];

	config = (tutti_config){.rank = 1, .world_size = 2, .rendezvous = url};
	snprintf(url, sizeof url, "file:///tmp/a b");
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_int_equal(job.meeting, JOB_FILE);
	assert_string_equal(job.path, "/tmp/a b");
	snprintf(url, sizeof url, "tutti://a,[::1],b:77/%s", secret);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	check("config", 1, 2, "a,[::1],b", 77);
	assert_true(job.is_served);
	assert_string_equal(job.secret, secret);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		snprintf(url, sizeof url, "%s", wrong[i]);
		if (job_find(&job, &config, &env) != TUTTI_ERR_INVALID)
			fail_msg("\"%s\" was taken", url);
		assert_non_null(strstr(last_error(), "rendezvous"));
	}
	/* A URL that lost its end is not shown: most of a secret is in it. */
	snprintf(url, sizeof url, "tutti://a:77/%.60s", secret);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_null(strstr(last_error(), "0123456789"));
	snprintf(url, sizeof url, "tuti://a:77/%s", secret);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_null(strstr(last_error(), "0123456789"));
	/* A URL that place_url makes is understood. */
	assert_int_equal(place_url(made, sizeof made, secret, 78, &env), TUTTI_OK);
	config.rendezvous = made;
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_int_equal(job.port, 78);
	assert_string_equal(job.secret, secret);
}

static void lists_of_hosts(void **state)
{
	const char *list = "a,[::1],10.0.0.1,b.c";
	static const char *const hosts[] = {"a", "::1", "10.0.0.1", "b.c"};
	char host[HOST_BYTES];

	for (int i = 0; i < 4; i++) {
		assert_true(place_next_host(&list, host));
		assert_string_equal(host, hosts[i]);
	}
	assert_false(place_next_host(&list, host));
	list = "::1"; /* a single one needs no brackets */
	assert_true(place_next_host(&list, host));
	assert_string_equal(host, "::1");
}

static void addresses_of_this_machine(void **state)
{
	bool is_here;

	assert_int_equal(place_is_here("127.0.0.1", &is_here), TUTTI_OK);
	assert_true(is_here);
	assert_int_equal(place_is_here("localhost", &is_here), TUTTI_OK);
	assert_true(is_here);
	assert_int_equal(place_is_here("0.0.0.0", &is_here), TUTTI_OK);
	assert_true(is_here);
	assert_int_equal(place_is_here("192.0.2.1", &is_here), TUTTI_OK); /* for documents only */
	assert_false(is_here);
	assert_int_equal(place_is_here("not a host", &is_here), TUTTI_IN_PROGRESS);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	fputs(text, file);
	fclose(file);
}

/* The log lines of three looks at a secret's file of this mode. */
static void look_thrice(const char *path, mode_t mode, char *lines, size_t bytes)
{
	FILE *log = tmpfile();
	int real = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(log && real >= 0);
	assert_int_equal(chmod(path, mode), 0);
	dup2(fileno(log), STDERR_FILENO);
	log_set_level(LOG_INFO);
	for (int i = 0; i < 3; i++)
		assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	log_set_level(LOG_OFF);
	dup2(real, STDERR_FILENO);
	n = pread(fileno(log), lines, bytes - 1, 0);
	assert_true(n > 0);
	lines[n] = '\0';
	close(real);
	fclose(log);
}

/* A secret that other users can read is used, with one warning. */
static void secrets_that_others_can_read(void **state)
{
	char dir[] = "/tmp/tuttitest-XXXXXX", path[64], lines[4000], *said;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/secret", dir);
	env.secret_file = path;
	write_file(path, "from a file");
	look_thrice(path, 0600, lines, sizeof lines);
	assert_null(strstr(lines, path));
	look_thrice(path, 0644, lines, sizeof lines);
	said = strstr(lines, path);
	if (!said || !strstr(said, "has mode 0644"))
		fail_msg("nobody speaks of the mode: %s", lines);
	assert_null(strstr(said + 1, path));
	assert_null(strstr(lines, "from a file"));
	unlink(path);
	rmdir(dir);
}

static void secrets(void **state)
{
	char dir[] = "/tmp/tuttitest-XXXXXX", path[64], longest[300];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/secret", dir);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_string_equal(job.secret, "");
	env.secret_file = path;
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_SYSTEM);
	assert_non_null(strstr(last_error(), path));
	write_file(path, "from a file\nand more\n");
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_string_equal(job.secret, "from a file");
	env.secret = "from the environment";
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_string_equal(job.secret, "from the environment");
	config.secret = "from the config";
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	assert_string_equal(job.secret, "from the config");
	config.secret = "";
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "config.secret is empty"));
	memset(longest, 's', sizeof longest);
	longest[255] = '\0';
	config.secret = longest;
	assert_int_equal(job_find(&job, &config, &env), TUTTI_OK);
	longest[255] = 's';
	longest[256] = '\0';
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_null(strstr(last_error(), "sss"));
	config.secret = NULL;
	env.secret = NULL;
	write_file(path, longest);
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	write_file(path, "\n");
	assert_int_equal(job_find(&job, &config, &env), TUTTI_ERR_INVALID);
	assert_non_null(strstr(last_error(), "is empty"));
	unlink(path);
	rmdir(dir);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
	const struct CMUnitTest tests[] = {
		TEST(nobody_is_alone),
		TEST(tuttirun_and_torchrun),
		TEST(contradictions_are_named),
		TEST(open_mpi),
		TEST(mpich),
		TEST(slurm),
		TEST(host_lists),
		TEST(the_config_comes_first),
		TEST(a_world_of_one_is_no_part_of_the_job),
		TEST(impossible_configs_are_refused),
		TEST(urls),
		TEST(lists_of_hosts),
		TEST(addresses_of_this_machine),
		TEST(secrets_that_others_can_read),
		TEST(secrets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
