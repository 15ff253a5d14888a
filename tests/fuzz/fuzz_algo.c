/* Would break: TUTTI_ALGO and TUTTI_TRANSPORTS: the text is given to both. */
#include "fuzz.h"

#include "collectives/select/select.h"
#include "transport/registry.h"

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	char *text = input_text(&in);
	struct select select = {.size = 4};
	struct call_args args = {.dtype = TUTTI_F32, .op = TUTTI_SUM};
	const struct algorithm *algorithm;
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	if (transport_list(list, &count, text, NULL) == TUTTI_OK)
		MUST(count > 0 && count <= TRANSPORTS_MAX && list[0]);
	if (select_parse(&select, text) == TUTTI_OK) {
		MUST(select.rules <= SELECT_RULES_MAX);
		for (int i = 0; i < select.rules; i++) {
			MUST(select.rule[i].algorithm);
			MUST(select.rule[i].first <= select.rule[i].last);
			args.collective = select.rule[i].collective;
			args.count = select.rule[i].first / 4;
			(void)select_algorithm(&select, &args, &algorithm);
		}
	}
	free(text);
}
