/* How long the parts of a segment are, and where each begins. */
#include "collectives/window/segment.h"

#define LARGEST_BYTES ((uint64_t)1 << 44) /* of a segment: more than any window_bytes come to */

/* The longest payload of a line. Up to there one wait and reading the data of all ranks beat two
 * waits and reading a share of it. More would drive the callers' data out of the cache. */
#define ROOMY_SMALL          16384u
#define OVERSUBSCRIBED_SMALL 8192u
/* In an all_reduce with a core for every rank: shares pay when a rank would read more than this of
 * others. */
#define ALL_REDUCE_READS 4096u

/* The best sizes with a core for every rank, and with fewer: a slot that stays in a core's cache;
 * where every wait is a switch of threads, few long pieces are better. */
#define ROOMY_SLOT          (128u << 10)
#define OVERSUBSCRIBED_SLOT (1u << 20)

/* The longest reduce that its root does alone, so that the others stage and return: in slots, or
 * bytes that are read. Of two ranks the root reads as many lines of the other core as when both
 * reduce a half. Where ranks share two cores, the root's core has as much to do as when all ranks
 * reduce, and no rank waits for its turn. With more cores it pays only for the switches of threads
 * that it saves. */
#define BY_ROOT_PAIR           128u
#define BY_ROOT_OVERSUBSCRIBED 16u
#define BY_ROOT_READS          (1u << 20)

static uint64_t geometry_round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Lines and bodies have half of window_bytes at the most; where that is little, there are no
 * bodies. */
static void set_lines(struct geometry *g, const struct window_config *config)
{
	uint64_t most = config->window_bytes / (2 * WINDOW_LINES) / WINDOW_ALIGN * WINDOW_ALIGN;
	bool is_roomy = !config->policy.shares_cores;

	g->line_bytes = geometry_round_up(LINE_BODY + LINE_BODY_BYTES, WINDOW_ALIGN);
	g->small_bytes = is_roomy ? ROOMY_SMALL : OVERSUBSCRIBED_SMALL;
	g->body_bytes = g->small_bytes + BODY_GAP;
	if (most < g->line_bytes + g->body_bytes) {
		most = most < WINDOW_ALIGN ? WINDOW_ALIGN : most;
		g->line_bytes = most < g->line_bytes ? most : g->line_bytes;
		g->small_bytes = g->line_bytes - LINE_BODY;
		if (g->small_bytes > LINE_BODY_BYTES)
			g->small_bytes = LINE_BODY_BYTES;
		g->body_bytes = 0;
	}
	g->small_all_reduce = g->small_bytes;
	if (is_roomy && g->size > 1 && g->small_bytes > ALL_REDUCE_READS / (unsigned)(g->size - 1))
		g->small_all_reduce = ALL_REDUCE_READS / (unsigned)(g->size - 1);
	if (g->small_all_reduce < LINE_PAYLOAD)
		g->small_all_reduce = LINE_PAYLOAD;
}

static uint64_t longest_by_root(const struct geometry *g, const struct window_config *config)
{
	bool is_roomy = !config->policy.shares_cores;

	if (g->size == 2)
		return (is_roomy ? BY_ROOT_PAIR : BY_ROOT_OVERSUBSCRIBED) * g->slot_bytes;
	if (is_roomy || g->size < 2)
		return 0;
	if (config->cores == 2)
		return BY_ROOT_OVERSUBSCRIBED * g->slot_bytes;
	return BY_ROOT_READS / (unsigned)(g->size - 1);
}

/* window_bytes holds the lines, two rows, the area and the slots of a rank; its place on the board
 * comes on top. */
tutti_status geometry_choose(struct geometry *g, const struct window_config *config)
{
	uint64_t size = (uint64_t)config->size, fixed;
	uint64_t slot = config->policy.shares_cores ? OVERSUBSCRIBED_SLOT : ROOMY_SLOT;

	if (config->size > WINDOW_MAX_RANKS)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "A window takes %d ranks at the most, and %d are on this node.",
			    WINDOW_MAX_RANKS, config->size);
	g->size = config->size;
	g->shares_cores = config->policy.shares_cores;
	set_lines(g, config);
	g->row_bytes = geometry_round_up(size * sizeof(struct row_entry), WINDOW_ALIGN);
	fixed = WINDOW_LINES * (g->line_bytes + g->body_bytes) + 2 * g->row_bytes +
		sizeof(struct rank_area);
	if (config->window_bytes < fixed + WINDOW_SLOTS * WINDOW_ALIGN * size)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_WINDOW_BYTES=%zu is too little: a window of %d ranks takes at "
			    "least %llu.",
			    config->window_bytes, config->size,
			    (unsigned long long)(fixed + WINDOW_SLOTS * WINDOW_ALIGN * size));
	if (slot > (config->window_bytes - fixed) / WINDOW_SLOTS)
		slot = (config->window_bytes - fixed) / WINDOW_SLOTS;
	g->slot_bytes = slot / WINDOW_ALIGN * WINDOW_ALIGN;
	g->by_root_bytes = longest_by_root(g, config);
	g->areas_at = geometry_round_up(sizeof(struct segment_head), WINDOW_ALIGN);
	g->lines_at = g->areas_at + size * sizeof(struct rank_area);
	g->bodies_at = g->lines_at + WINDOW_LINES * size * g->line_bytes;
	g->rows_at = g->bodies_at + WINDOW_LINES * size * g->body_bytes;
	g->slots_at = geometry_round_up(g->rows_at + 2 * size * g->row_bytes, 4096);
	g->board_at = geometry_round_up(g->slots_at + size * WINDOW_SLOTS * g->slot_bytes, 4096);
	g->total_bytes = geometry_round_up(g->board_at + size * sizeof(struct board_place), 4096);
	return TUTTI_OK;
}

/* Places come one behind the other, each with room for what lies there. No product overflows: a
 * segment is at most LARGEST_BYTES long. */
static bool is_in_order(const struct geometry *g)
{
	uint64_t size = (uint64_t)g->size;
	const uint64_t at[] = {0,          g->areas_at, g->lines_at, g->bodies_at,
			       g->rows_at, g->slots_at, g->board_at, g->total_bytes};
	const uint64_t bytes[] = {sizeof(struct segment_head),
				  size * sizeof(struct rank_area),
				  WINDOW_LINES * size * g->line_bytes,
				  WINDOW_LINES * size * g->body_bytes,
				  2 * size * g->row_bytes,
				  size * WINDOW_SLOTS * g->slot_bytes,
				  size * sizeof(struct board_place)};

	for (int i = 0; i < 7; i++)
		if (at[i] % WINDOW_ALIGN || at[i] > g->total_bytes || at[i + 1] < at[i] ||
		    at[i + 1] - at[i] < bytes[i])
			return false;
	return true;
}

bool geometry_is_sound(const struct geometry *g)
{
	const uint64_t strides[] = {g->line_bytes, g->body_bytes, g->row_bytes, g->slot_bytes};
	uint64_t in_line = g->small_bytes < LINE_BODY_BYTES ? g->small_bytes : LINE_BODY_BYTES;

	if (g->size < 1 || g->size > WINDOW_MAX_RANKS || g->total_bytes > LARGEST_BYTES)
		return false;
	for (int i = 0; i < 4; i++)
		if (strides[i] % WINDOW_ALIGN || strides[i] > g->total_bytes)
			return false;
	if (g->line_bytes < sizeof(struct line) || g->slot_bytes == 0 ||
	    g->row_bytes < (uint64_t)g->size * sizeof(struct row_entry) || !is_in_order(g))
		return false;
	return g->small_bytes >= LINE_PAYLOAD && g->line_bytes >= LINE_BODY + in_line &&
	       (g->small_bytes <= LINE_BODY_BYTES || g->small_bytes <= g->body_bytes) &&
	       g->small_all_reduce <= g->small_bytes;
}
