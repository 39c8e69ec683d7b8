import { render } from "preact";
import { App } from "./app.js";
import { readHistory, takeLeft } from "./history.js";
import { start } from "./model.js";
import "./style.css";

const root = document.getElementById("app");
if (root !== null) {
  render(<App />, root);
  start();
  takeLeft();
  void readHistory();
}
