import { render } from "preact";
import { App } from "./app.js";
import { reopen } from "./chat.js";
import { readHistory, takeLeft } from "./history.js";
import { start } from "./model.js";
import "./style.css";

const root = document.getElementById("app");
if (root !== null) {
  start(); // what the address asks for is there from the first drawing on
  render(<App />, root);
  takeLeft();
  void readHistory().then(reopen);
}
