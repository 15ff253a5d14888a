/* Would break: the promise of config.deterministic, that bits depend on nothing but the data and
 * the number of ranks; and that all ranks have the same bits without it.
 *
 * hash_main N [SECONDS]: N ranks, each a process, join again and again: with every transport, every
 * node layout, every algorithm that there is, short slices, small windows, memory of
 * tutti_mem_alloc, every set of instructions, the same on all ranks and another on each. Each
 * time they reduce the same data in every way, and compare the hashes with the first ones. */
#include "../../core/memory/ops.h"

#include <tutti/tutti.h>

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEMS_MOST 128
#define RANKS_MOST 8
#define COUNT_MOST 100003
#define NAMES_MOST 16
#define SETS_MOST  5
#define MIXED      (-1) /* each rank has other instructions than the next */

enum { OP_USER = OPS_BUILT_IN, OP_SCALED }; /* ops of the caller's, after those of tutti.h */
enum call { ALL_REDUCE, REDUCE, SCATTERV, SCATTER, CALLS };

/* One reduction of `count` elements of every rank. */
struct item {
	tutti_dtype dtype;
	int op;
	size_t count;
	char *in;      /* what this rank contributes                    */
	uint64_t full; /* hash of the result; and of what P divides     */
	uint64_t divided;
};

/* What the ranks find out about an item: parts of hashes, that sum up over ranks; 0 where refused.
 */
struct found {
	uint64_t hash[CALLS], divided;
	uint64_t refused[CALLS];
};

/* One way to be connected. layout: how ranks are spread. */
struct way {
	const char *algorithm, *transports, *window, *window_bytes, *slice_bytes;
	enum { ONE_NODE, HALVES, IN_TURN } layout;
	int simd;     /* 0: the latest instructions; from 1 on: those of sets[simd - 1]; MIXED */
	bool is_free; /* not deterministic */
	bool shared;  /* memory of tutti_mem_alloc */
	bool later;   /* asynchronous */
};

static const struct {
	size_t bytes;
	int exponent, mantissa; /* bits; 0: an integer */
} dtypes[] = {
	[TUTTI_F32] = {4, 8, 23}, [TUTTI_F64] = {8, 11, 52},   [TUTTI_F16] = {2, 5, 10},
	[TUTTI_BF16] = {2, 8, 7}, [TUTTI_F8_E4M3] = {1, 4, 3}, [TUTTI_F8_E5M2] = {1, 5, 2},
	[TUTTI_I8] = {1, 0, 0},   [TUTTI_U8] = {1, 0, 0},      [TUTTI_I16] = {2, 0, 0},
	[TUTTI_U16] = {2, 0, 0},  [TUTTI_I32] = {4, 0, 0},     [TUTTI_U32] = {4, 0, 0},
	[TUTTI_I64] = {8, 0, 0},  [TUTTI_U64] = {8, 0, 0},
};
#define DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))
static const char *const calls[CALLS] = {"all_reduce", "reduce", "reduce_scatterv",
					 "reduce_scatter"};
static const char *const patterns[] = {"all_reduce", "reduce", "reduce_scatter"};
#define PATTERNS 3

static struct item items[ITEMS_MOST];
static int n_items, rank, size, round_number;
static char now[512]; /* the way, in words */
static char names[NAMES_MOST][32];
static bool has[NAMES_MOST][PATTERNS]; /* names[i] is an algorithm of patterns[j] */
static int n_names;
static const char *sets[SETS_MOST]; /* of instructions, that this CPU has */
static int n_sets;

_Noreturn static void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *format, ...)
{
	va_list args;
	fprintf(stderr, "rank %d of %d, %s: ", rank, size, now);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1);
}

static void ok(tutti_status status, const char *what)
{
	if (status != TUTTI_OK)
		die("%s: %s: %s", what, tutti_status_string(status), tutti_comm_error(NULL));
}

static uint64_t mix(uint64_t z)
{
	z += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Infinities, NaNs with payloads, zeros, the largest and the smallest, of either sign. */
static uint64_t special(uint64_t h, int exponent, int mantissa)
{
	uint64_t top = ((UINT64_C(1) << exponent) - 1) << mantissa,
		 low = (UINT64_C(1) << mantissa) - 1;
	switch (h >> 8 & 7) {
	case 0:
		return top | (h >> 11 & low); /* an infinity or a NaN */
	case 1:
	case 2:
		return top;
	case 3:
		return top - 1;
	case 4:
		return 1;
	case 5:
		return h >> 11 & (top | low);
	default:
		return 0;
	}
}

/* Most numbers are within a few powers of two of one another, so that sums round each in its own
 * way. */
static uint64_t element(const struct item *item, size_t i, int of)
{
	int e = dtypes[item->dtype].exponent, m = dtypes[item->dtype].mantissa;
	uint64_t h = mix(mix((uint64_t)(item - items) * RANKS_MOST + (uint64_t)of) + i);
	if (!e)
		return h;
	uint64_t sign = (h & 1) << (e + m), low = (UINT64_C(1) << m) - 1;
	if ((h >> 1 & 31) == 0)
		return sign | special(h, e, m);
	uint64_t around = (UINT64_C(1) << (e - 1)) - (e < 8 ? 3 : 9) + (h >> 6) % (e < 8 ? 4 : 16);
	return sign | around << m | (h >> 12 & low);
}

static void put(char *at, uint64_t bits, size_t bytes)
{
	memcpy(at, &bits, bytes); /* little-endian */
}

/* Parts of the hash of a vector: elements first .. first + n of it. */
static uint64_t hash_of(const char *at, size_t first, size_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t bits = 0;
		memcpy(&bits, at + i * bytes, bytes);
		sum += mix(bits ^ (first + i) * UINT64_C(0xd1342543de82ef95));
	}
	return sum;
}

static void add_item(int dtype, int op, size_t count)
{
	struct item *item = &items[n_items++];
	size_t bytes = dtypes[dtype].bytes;

	if (n_items > ITEMS_MOST)
		die("more than %d items", ITEMS_MOST);
	*item = (struct item){.dtype = (tutti_dtype)dtype, .op = op, .count = count};
	if (!(item->in = malloc(count * bytes)))
		die("no memory");
	for (size_t i = 0; i < count; i++)
		put(item->in + i * bytes, element(item, i, rank), bytes);
}

/* Of the bitwise ops one stands for all. An average of integers has an item of its own. */
static bool is_tried(int op, int dtype)
{
	bool is_float = dtypes[dtype].exponent;

	if (op == OP_USER)
		return dtype == TUTTI_F32 || dtype == TUTTI_F64;
	if (op == OP_SCALED)
		return is_float || dtype == TUTTI_I32;
	if (op_is_bitwise((tutti_op)op))
		return !is_float && op == TUTTI_BXOR;
	return is_float || op != TUTTI_AVG;
}

static void add_items(void)
{
	static const size_t counts[] = {1, 1009, 33, 4099, 260};

	for (int dtype = 0; dtype < DTYPES; dtype++) {
		bool is_float = dtypes[dtype].exponent;
		for (int op = TUTTI_SUM; op <= OP_SCALED; op++)
			if (is_tried(op, dtype))
				add_item(dtype, op,
					 is_float && op == TUTTI_SUM ? 1009 : counts[n_items % 5]);
	}
	add_item(TUTTI_I16, TUTTI_AVG, 500);
	add_item(TUTTI_F32, TUTTI_SUM, COUNT_MOST);
	add_item(TUTTI_BF16, TUTTI_AVG, COUNT_MOST);
	add_item(TUTTI_F64, OP_USER, 20011);
}

/* (1 + x) (1 + y) - 1: whatever the order of x and y, but not whatever the association. */
static void compound(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < count; i++) {
		if (dtype == TUTTI_F32) {
			float *x = inout, y = ((const float *)in)[i], z = x[i] + y + x[i] * y;
			x[i] = isnan(z) ? (float)NAN : z;
		} else {
			double *x = inout, y = ((const double *)in)[i], z = x[i] + y + x[i] * y;
			x[i] = isnan(z) ? (double)NAN : z;
		}
	}
}

static tutti_op user_op, scaled_ops[DTYPES];

static void create_ops(void)
{
	ok(tutti_op_create(&user_op, "compound", compound, NULL), "op_create");
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		struct item of = {.dtype = (tutti_dtype)dtype};
		uint64_t scalar = element(&of, 1, rank); /* no special one */
		for (size_t i = 1; (dtypes[dtype].exponent && (mix(scalar) & 31) == 0) && i < 9;
		     i++)
			scalar = element(&of, i, rank);
		ok(tutti_op_create_scaled(&scaled_ops[dtype], &scalar, (tutti_dtype)dtype),
		   "op_create_scaled");
	}
}

static tutti_op op_of(const struct item *item)
{
	return item->op == OP_USER     ? user_op
	       : item->op == OP_SCALED ? scaled_ops[item->dtype]
				       : (tutti_op)item->op;
}

static tutti_comm *comm;
static char *sends, *results;

static int root_of(int item)
{
	return (item + round_number) % size;
}

/* Parts of reduce_scatterv: uneven, of few elements some are empty. */
static size_t cut(size_t count, int part)
{
	return count * (size_t)part * (size_t)part / ((size_t)size * (size_t)size);
}

static tutti_status issue(const struct item *item, enum call which, const tutti_call *how)
{
	size_t counts[RANKS_MOST];
	tutti_op op = op_of(item);
	const char *in = sends;

	switch (which) {
	case ALL_REDUCE:
		return tutti_all_reduce(in, results, item->count, item->dtype, op, comm, how);
	case REDUCE:
		return tutti_reduce(in, results, item->count, item->dtype, op,
				    root_of((int)(item - items)), comm, how);
	case SCATTERV:
		for (int r = 0; r < size; r++)
			counts[r] = cut(item->count, r + 1) - cut(item->count, r);
		return tutti_reduce_scatterv(in, results, counts, NULL, item->dtype, op, comm, how);
	default:
		return tutti_reduce_scatter(in, results, item->count / (size_t)size, item->dtype,
					    op, comm, how);
	}
}

static uint64_t hash_result(const struct item *item, enum call which)
{
	size_t bytes = dtypes[item->dtype].bytes, each = item->count / (size_t)size;
	size_t first = cut(item->count, rank);

	if (which == SCATTER)
		return hash_of(results, (size_t)rank * each, each, bytes);
	if (which == SCATTERV)
		return hash_of(results, first, cut(item->count, rank + 1) - first, bytes);
	if (which == REDUCE && rank != root_of((int)(item - items)))
		return 0;
	return hash_of(results, 0, item->count, bytes);
}

/* A refusal names the reason; in deterministic mode either the mode or what the algorithm cannot
 * do. */
static void check_refusal(const struct way *way, const struct item *item, enum call which)
{
	static const char *const reasons[] = {"config.deterministic", "it needs several nodes",
					      "do not share memory", "an average of integers"};
	const char *why = tutti_comm_error(NULL), *name = way->algorithm;
	bool narrow = dtypes[item->dtype].exponent && dtypes[item->dtype].bytes < 4;

	for (int i = way->is_free; i < 4; i++)
		if (strstr(why, reasons[i]) && name && strcmp(name, "direct") != 0 &&
		    (i || strcmp(name, "knomial") != 0 || narrow))
			return;
	die("%s refused: %s", calls[which], why);
}

static void run_call(const struct way *way, const struct item *item, enum call which,
		     struct found *found)
{
	tutti_work *work = NULL;
	tutti_call how = {.work = &work};
	tutti_status status = issue(item, which, way->later ? &how : NULL);

	if (status == TUTTI_ERR_UNSUPPORTED) {
		check_refusal(way, item, which);
		found->refused[which] = 1;
		return;
	}
	ok(status, calls[which]);
	ok(tutti_work_wait(&work, 0), calls[which]);
	found->hash[which] = hash_result(item, which);
	if (which == ALL_REDUCE)
		found->divided = hash_of(results, 0, item->count / (size_t)size * (size_t)size,
					 dtypes[item->dtype].bytes);
}

static void differs(const struct item *item, enum call which, int where)
{
	die("%s of %zu elements of dtype %d with op %d: other bits%s %d", calls[which], item->count,
	    (int)item->dtype, item->op, where < 0 ? " than the first way's; root" : " on rank",
	    where < 0 ? root_of((int)(item - items)) : where);
}

/* all: what each rank found about the item. Returns whether the sum's bits are the first way's. */
static bool compare(const struct way *way, struct item *item, const struct found *all, size_t step)
{
	const struct found *first = &all[0];
	uint64_t sum[CALLS] = {0};

	for (int r = 0; r < size; r++) {
		const struct found *f = &all[(size_t)r * step];
		if (f->hash[ALL_REDUCE] != first->hash[ALL_REDUCE])
			differs(item, ALL_REDUCE, r);
		for (int c = 0; c < CALLS; c++)
			sum[c] += f->hash[c];
	}
	sum[ALL_REDUCE] = first->hash[ALL_REDUCE];
	if (!item->full) {
		item->full = sum[ALL_REDUCE];
		item->divided = first->divided;
	}
	for (int c = 0; c < CALLS && !way->is_free; c++)
		if (!first->refused[c] && sum[c] != (c == SCATTER ? item->divided : item->full))
			differs(item, (enum call)c, -1);
	return first->refused[ALL_REDUCE] || sum[ALL_REDUCE] == item->full;
}

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static const char *set_of(const struct way *way)
{
	if (way->simd == MIXED)
		return sets[(rank + round_number) % n_sets];
	return way->simd ? sets[way->simd - 1] : NULL;
}

/* The ranks of each host, and which algorithm is forced for what it exists for. */
static void enter(const struct way *way)
{
	static const char *const layouts[] = {"one node", "2 nodes", "2 nodes in turn"};
	static const char *const hosts[] = {"first", "second"};
	char forced[200] = "";

	for (int i = 0; way->algorithm && i < n_names; i++)
		for (int p = 0; strcmp(names[i], way->algorithm) == 0 && p < PATTERNS; p++)
			if (has[i][p])
				snprintf(forced + strlen(forced), sizeof forced - strlen(forced),
					 "%s%s=%.24s", forced[0] ? "," : "", patterns[p], names[i]);
	set("TUTTI_ALGO", forced[0] ? forced : NULL);
	set("TUTTI_TRANSPORTS", way->transports);
	set("TUTTI_WINDOW", way->window);
	set("TUTTI_WINDOW_BYTES", way->window_bytes);
	set("TUTTI_SLICE_BYTES", way->slice_bytes);
	set("TUTTI_SIMD", set_of(way));
	set("TUTTI_HOST_ID", way->layout == ONE_NODE  ? NULL
			     : way->layout == IN_TURN ? hosts[rank % 2]
						      : hosts[rank >= (size + 1) / 2]);
	snprintf(now, sizeof now,
		 "%s, %s, TUTTI_ALGO=%s, transports %s, window %s of %s, slices %s%s%s, "
		 "instructions %s",
		 way->is_free ? "not deterministic" : "deterministic", layouts[way->layout], forced,
		 way->transports ? way->transports : "all", way->window ? way->window : "1",
		 way->window_bytes ? way->window_bytes : "8M",
		 way->slice_bytes ? way->slice_bytes : "256K", way->shared ? ", zero copy" : "",
		 way->later ? ", asynchronous" : "", set_of(way) ? set_of(way) : "by itself");
	const tutti_config config = {.deterministic = !way->is_free};
	ok(tutti_init(&comm, &config), "init");
}

/* False in a build without the window. */
static bool take_shared(char **at, size_t bytes)
{
	void *memory;
	tutti_status status = tutti_mem_alloc(&memory, bytes, comm);
	if (status == TUTTI_ERR_UNSUPPORTED)
		return false;
	ok(status, "mem_alloc");
	*at = memory;
	return true;
}

/* Returns how many all_reduces had other bits than the first way's. */
static int run(const struct way *way)
{
	static struct found mine[ITEMS_MOST];
	size_t bytes = COUNT_MOST * 8;
	int others = 0;

	enter(way);
	memset(mine, 0, sizeof mine);
	const bool shared = way->shared && take_shared(&sends, bytes);
	if (shared ? !take_shared(&results, bytes)
		   : !(sends = malloc(bytes)) || !(results = malloc(bytes)))
		die("no memory");
	for (int i = 0; i < n_items; i++) {
		memcpy(sends, items[i].in, items[i].count * dtypes[items[i].dtype].bytes);
		for (int c = 0; c < (way->is_free ? 1 : CALLS); c++)
			run_call(way, &items[i], (enum call)c, &mine[i]);
	}
	struct found *all = malloc(sizeof mine * (size_t)size);
	if (!all)
		die("no memory");
	ok(tutti_all_gather(mine, all, sizeof mine, TUTTI_U8, comm, NULL), "all_gather");
	for (int i = 0; i < n_items; i++)
		others += !compare(way, &items[i], all + i, ITEMS_MOST);
	free(all);
	if (shared) {
		ok(tutti_mem_free(sends), "mem_free");
		ok(tutti_mem_free(results), "mem_free");
	} else {
		free(sends);
		free(results);
	}
	tutti_comm_destroy(comm);
	round_number++;
	return others;
}

static int name_number(const char *name)
{
	for (int i = 0; i < n_names; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	if (n_names == NAMES_MOST)
		die("more than %d algorithms", NAMES_MOST);
	snprintf(names[n_names], sizeof names[0], "%s", name);
	return n_names++;
}

/* Which algorithms there are says the library, in what it answers to a name that is none. */
static void find_names(void)
{
	for (int p = 0; p < PATTERNS; p++) {
		char text[600], rule[64], *rest = text, *name;
		tutti_comm *none;

		snprintf(rule, sizeof rule, "%s=?", patterns[p]);
		set("TUTTI_ALGO", rule);
		if (tutti_init_all(&none, 1, NULL) != TUTTI_ERR_INVALID)
			die("%s is an algorithm", rule);
		snprintf(text, sizeof text, "%s", tutti_comm_error(NULL));
		if (!(rest = strstr(text, "there are ")))
			die("%s does not say what there is", text);
		for (rest += strlen("there are "); (name = strsep(&rest, ", ."));)
			if (*name)
				has[name_number(name)][p] = true;
	}
}

/* Which instructions there are says the library too: it takes no others. */
static void find_sets(void)
{
	static const char *const all[SETS_MOST] = {"base", "avx2", "avx512", "avx512_bf16",
						   "avx512_fp16"};

	for (int i = 0; i < SETS_MOST; i++) {
		tutti_comm *alone;

		set("TUTTI_SIMD", all[i]);
		if (tutti_init_all(&alone, 1, NULL) != TUTTI_OK) {
			if (i == 0 || !strstr(tutti_comm_error(NULL), "this CPU"))
				die("%s", tutti_comm_error(NULL));
			continue;
		}
		tutti_comm_destroy(alone);
		sets[n_sets++] = all[i];
	}
}

static void run_sets(void)
{
	for (int k = 1; k <= n_sets; k++) {
		run(&(struct way){.simd = k, .shared = k % 2});
		run(&(struct way){.simd = k, .window = "0", .transports = "shm", .later = true});
	}
	for (int i = 0; i < 3; i++)
		run(&(struct way){.simd = MIXED,
				  .window = i == 0 ? "0" : NULL,
				  .layout = i == 1 ? HALVES : ONE_NODE,
				  .shared = i == 2});
}

static void run_ways(void)
{
	static const struct way ways[] = {
		{.later = true},
		{.shared = true},
		{.window_bytes = "64K", .shared = true, .later = true},
		{.window_bytes = "64K"},
		{.window = "0", .transports = "shm"},
		{.window = "0", .transports = "tcp", .slice_bytes = "4096", .later = true},
		{.layout = HALVES},
		{.layout = IN_TURN, .slice_bytes = "1000"},
	};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		if (run(&ways[i]) != 0)
			die("other bits");
	run_sets();
	for (int i = 0; i < n_names; i++) {
		bool is_window = strcmp(names[i], "window") == 0, odd = i % 2;
		struct way way = {.algorithm = names[i],
				  .transports = is_window ? NULL
						: odd     ? "shm"
							  : "tcp",
				  .window = is_window ? NULL : "0",
				  .slice_bytes = odd ? "2048" : NULL,
				  .later = odd};
		run(&way);
		way.is_free = true;
		way.later = !odd;
		/* What shows that these data tell associations apart. */
		if (run(&way) == 0 && size > 2 && strcmp(names[i], "ring") == 0)
			die("no other bits than those of the fixed association");
		if (is_window)
			continue;
		way.is_free = false;
		way.transports = NULL;
		way.layout = odd ? HALVES : IN_TURN;
		run(&way);
		way.is_free = strcmp(names[i], "two_level") == 0; /* elsewhere it cannot run */
		if (way.is_free)
			run(&way);
	}
}

/* Not yet a rank: `ranks`, which lies beside this program, starts N. */
static int start(const char *self, const char *n, const char *seconds)
{
	char ranks[4096];
	const char *end = strrchr(self, '/');

	snprintf(ranks, sizeof ranks, "%.*s/ranks", end ? (int)(end - self) : 1, end ? self : ".");
	execl(ranks, ranks, "-n", n, "-t", seconds, self, (char *)NULL);
	perror(ranks);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc == 2 || argc == 3)
		return start(argv[0], argv[1], argc == 3 ? argv[2] : "110");
	if (!getenv("RANK") || !getenv("WORLD_SIZE")) {
		fprintf(stderr, "hash_main N [SECONDS]\n");
		return 2;
	}
	rank = atoi(getenv("RANK"));
	size = atoi(getenv("WORLD_SIZE"));
	find_names();
	set("TUTTI_ALGO", NULL);
	find_sets();
	create_ops();
	add_items();
	run_ways();
	for (int i = 0; i < n_items; i++)
		free(items[i].in);
	return 0;
}
