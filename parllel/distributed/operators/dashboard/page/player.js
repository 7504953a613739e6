// One player of a game: a row of the game's card.

import { Fields, copyOf, show } from "./dom.js";
import { LastAction } from "./last_action.js";
import { numberText, shortName, statusName } from "./words.js";

export class Player {
  node = copyOf("player-template").firstElementChild;
  asked = this.node.querySelector(".asked");
  #fields = new Fields(this.node);
  #last;
  #status = null;

  constructor(id, card) {
    this.node.dataset.player = id;
    this.#last = new LastAction(this.node.querySelector(".last"), `${card}:${id}`);
    this.#fields.write({ player: id });
  }

  update(player) {
    this.node.dataset.status = player.status;
    this.#status = player.status;
    this.connected(true);
    this.#fields.write({
      operator: player.operator_id,
      type: player.operator_type,
      "total-reward": numberText(player.total_reward),
    });
    const policy = player.policy ?? "";
    this.#fields.writeShort("policy", shortName(policy), policy);
    show(this.node.querySelector(".policy"), Boolean(player.policy));
    this.#last.update(player.last, player.operator_type);
  }

  /** Show whether there is a connection. Without one, the status is outdated. */
  connected(isOnline) {
    const shown = isOnline ? this.#status : "offline";
    this.node.dataset.shown = shown;
    this.#fields.write({ status: statusName(shown) });
  }
}
