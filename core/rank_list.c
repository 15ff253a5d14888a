/* See rank_list.h. */
#include "core/rank_list.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void rank_list_begin(struct rank_list *l, char *text, size_t text_bytes)
{
	assert(text_bytes >= RANK_LIST_LEAST);
	*l = (struct rank_list){.text = text, .text_bytes = text_bytes};
	text[0] = '\0';
}

static void rank_list_append(struct rank_list *l, const char *before, int number, const char *after)
{
	l->used += (size_t)snprintf(l->text + l->used, l->text_bytes - l->used, "%s%d%s", before,
				    number, after);
}

static void rank_list_write_run(struct rank_list *l)
{
	if (l->used + RANK_LIST_LEAST > l->text_bytes) {
		l->left_out += l->last - l->first + 1;
		return;
	}
	rank_list_append(l, l->used ? ", " : "rank ", l->first, "");
	if (l->last > l->first)
		rank_list_append(l, l->last > l->first + 1 ? " to " : ", ", l->last, "");
}

void rank_list_add_run(struct rank_list *l, int first, int last)
{
	if (!l->count || first - 1 != l->last) {
		if (l->count)
			rank_list_write_run(l);
		l->first = first;
	}
	l->last = last;
	l->count += last - first + 1;
}

void rank_list_add(struct rank_list *l, int rank)
{
	rank_list_add_run(l, rank, rank);
}

const char *rank_list_end(struct rank_list *l)
{
	if (l->count)
		rank_list_write_run(l);
	if (l->left_out)
		rank_list_append(l, " and ", l->left_out, " more");
	if (l->count > 1) { /* "rank 1, 3": "ranks 1, 3" */
		memmove(l->text + 5, l->text + 4, l->used - 3);
		l->text[4] = 's';
	}
	return l->text;
}
