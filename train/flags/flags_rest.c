/* Words of a command line that nobody knows. */
#include "train/flags/flags.h"

#include "core/words/nearest.h"

#include <string.h>

/* ", --gpus, --port ...": as many names as there is room for. */
static void flags_rest_list_names(char *list, size_t bytes, const char *const *own)
{
	size_t used = 0;

	for (int i = 0; i < FLAGS; i++)
		used += (size_t)snprintf(list + used, bytes - used, "%s--%s", used ? ", " : "",
					 flags[i].name);
	for (int i = 0; own && own[i]; i++) {
		if (used + strlen(own[i]) + sizeof ", --, ..." > bytes) {
			strcpy(list + used, ", ...");
			return;
		}
		used += (size_t)snprintf(list + used, bytes - used, ", --%s", own[i]);
	}
}

static tutti_status flags_rest_refuse(const char *word, const char *const *own)
{
	const char *name = word + strspn(word, "-");
	struct nearest nearest = nearest_to(name, strcspn(name, "="));
	char shown[WORD_SHOWN_BYTES], list[300];

	word_shown(shown, word, strcspn(word, "="));
	for (int i = 0; i < FLAGS; i++)
		nearest_try(&nearest, flags[i].name);
	for (int i = 0; own && own[i]; i++)
		nearest_try(&nearest, own[i]);
	if (nearest.name)
		return fail_invalid("There is no flag %s: did you mean --%s?", shown, nearest.name);
	flags_rest_list_names(list, sizeof list, own);
	return fail_invalid("There is no flag %s; the flags are %s.", shown, list);
}

tutti_status tutti_train_config_rest(int argc, char *const *argv, const char *const *own)
{
	if (!argv && argc > 0)
		return fail_invalid("tutti_train_config_rest needs argv, not NULL.");
	for (int i = 1; i < argc && argv[i] && strcmp(argv[i], "--") != 0; i++)
		if (argv[i][0] == '-' && argv[i][1] != '\0')
			return flags_rest_refuse(argv[i], own);
	return TUTTI_OK;
}
