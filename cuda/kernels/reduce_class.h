/* Reductions of dtypes that share an accumulator; included once for each (ACC, TAG). Functions
 * have dtype as a constant. At most 8 sources make one group, whose loads are all in flight at
 * once; a group is a complete subtree of the tree of reduce.h. */
#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define OF(name)     PASTE(name, TAG)

/* v[0..n) by distance 1, 2, 4. */
DEVICE ACC OF(tree)(const ACC *in, int n, int dtype, int op)
{
	ACC v[GROUP];

	UNROLL
	for (int s = 0; s < GROUP; s++)
		v[s] = in[s];
	UNROLL
	for (int far = 1; far < GROUP; far *= 2) {
		UNROLL
		for (int s = 0; s + far < GROUP; s += 2 * far)
			if (s + far < n)
				v[s] = OF(merge)(dtype, op, v[s], v[s + far]);
	}
	return v[0];
}

/* The switch is outside of the tree, so that no merge has it. */
DEVICE ACC OF(tree_of_op)(const ACC *v, int n, int dtype, int op)
{
#define TREE_CASE(name)                                                                            \
	case TUTTI_##name:                                                                         \
		return OF(tree)(v, n, dtype, TUTTI_##name);
	switch (op) {
		TREE_CASE(PROD)
		TREE_CASE(MIN)
		TREE_CASE(MAX)
#ifdef BITWISE
		TREE_CASE(BAND)
		TREE_CASE(BOR)
		TREE_CASE(BXOR)
#endif
	default:
		return OF(tree)(v, n, dtype, TUTTI_SUM);
	}
#undef TREE_CASE
}

/* The partial results that a thread keeps of a unit between groups: level l holds, of each element,
 * the subtree of 2^l groups where bit l of the number of groups is set. */
struct OF(levels) {
	ACC at[LEVELS][UNIT_MOST];
	unsigned groups;
};

DEVICE void OF(push)(struct OF(levels) *levels, const struct reduce_job *job, int e, ACC x,
		     int dtype)
{
	int l = 0;

	NO_UNROLL
	for (; levels->groups >> l & 1; l++)
		x = OF(merge)(dtype, job->op, levels->at[l][e], x);
	levels->at[l][e] = x;
}

/* Leaves the result on level 0. */
DEVICE void OF(merge_levels)(struct OF(levels) *levels, const struct reduce_job *job, int e,
			     int dtype)
{
	int l = 0;
	ACC x;

	while (!(levels->groups >> l & 1))
		l++;
	x = levels->at[l][e];
	NO_UNROLL
	for (l++; levels->groups >> l; l++)
		if (levels->groups >> l & 1)
			x = OF(merge)(dtype, job->op, levels->at[l][e], x);
	levels->at[0][e] = x;
}

DEVICE uint64_t OF(result)(const struct OF(levels) *levels, const struct reduce_job *job, int e,
			   int dtype)
{
	return OF(put)(dtype, OF(divide)(levels->at[0][e], job->divisor));
}

/* elements: of a whole unit, or 1. */
DEVICE void OF(reduce_group)(struct OF(levels) *levels, const struct reduce_job *job, int first,
			     uint64_t at, int elements, int dtype)
{
	int n = job->n_src - first < GROUP ? job->n_src - first : GROUP;
	struct vector raw[GROUP];
	ACC v[GROUP];

	UNROLL
	for (int s = 0; s < GROUP; s++) {
		raw[s] = vector_zero();
		if (s < n)
			raw[s] = load_elements((const char *)job->src[first + s] + at, elements,
					       dtype);
	}
	NO_UNROLL
	for (int e = 0; e < elements; e++) {
		UNROLL
		for (int s = 0; s < GROUP; s++) {
			v[s] = OF(get)(dtype, vector_get(&raw[s], 0, element_bytes(dtype)));
			vector_shift(&raw[s], element_bytes(dtype));
		}
		OF(push)(levels, job, e, OF(tree_of_op)(v, n, dtype, job->op), dtype);
	}
	levels->groups++;
}

/* Any op and any number of sources, from part first of units_part() on. */
DEVICE void OF(reduce_any)(const struct reduce_job *job, struct job_units units, uint64_t first,
			   int dtype)
{
	uint64_t n = units.n + job->count - units.elements;

	NO_UNROLL
	for (uint64_t i = first + job->thread; i < n; i += job->threads) {
		struct OF(levels) levels;
		struct vector out = vector_zero();
		int elements;
		uint64_t at = units_part(units, i, &elements, dtype);
		levels.groups = 0;
		NO_UNROLL
		for (int s = 0; s < job->n_src; s += GROUP)
			OF(reduce_group)(&levels, job, s, at, elements, dtype);
		NO_UNROLL
		for (int e = 0; e < elements; e++)
			OF(merge_levels)(&levels, job, e, dtype);
		UNROLL
		for (int e = 0; e < UNIT_ELEMENTS(dtype); e++)
			if (e < elements)
				vector_put(&out, e, element_bytes(dtype),
					   OF(result)(&levels, job, e, dtype));
		NO_UNROLL
		for (int d = 0; d < job->n_dst; d++)
			store_elements((char *)job->dst[d] + at, out, elements, dtype);
	}
}

#undef OF
#undef PASTE
#undef PASTE_
